"""A blob store over Spark's map state, with pipelined requests."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.errors import StateStoreError

_KNOWN_SPARK = "4.3."
"""The versions of PySpark whose private client is known to pipeline requests."""
_IN_CHUNK = 256
"""How many requests are sent at once. Two chunks are on their way while answers are read."""
_READ_BYTES = 16_384
"""How large a chunk of reads is. Answers may be long, so Spark may stop reading requests until some
answers were read: the requests of two chunks must fit into the buffers of the sockets."""
_WRITE_BYTES = 1_048_576
"""How large a chunk of writes is. Answers are short, so Spark never stops reading requests."""
_FRAME = struct.Struct("!ii")
_SIZE = struct.Struct("!i")
_MESSAGE_VERSION = 0
_BEFORE_VALUE = b"cbuiltins\nbytes\nc__builtin__\nbytearray\nX"
_AFTER_VALUE = b"q\x03X\x07\x00\x00\x00latin-1q\x04\x86Rq\x05\x85Rq\x06tRq\x07."
"""The bytes around the one value in a pickled row of Spark."""
_LENGTH = struct.Struct("<i")
_LONGEST_SCHEMA = 1_024


class SparkBlobs:
    """A `BlobStore` over one map state of Spark, whose key and value are one binary column each.

    A public call of PySpark waits for its reply. Spark replies in order, so its private client can
    send many requests first. By default only the known version of PySpark is ``pipelined``.
    """

    def __init__(
        self, map_state: Any, grouping_key: tuple[Any, ...] = (), *, pipelined: bool | None = None
    ) -> None:
        self._state = map_state
        self._own_key = tuple(grouping_key)
        self._grouping_key = self._own_key
        self._channel = _Channel(map_state) if _is_known(pipelined=pipelined) else None

    def get_many(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        with self._with_grouping_key():
            if self._channel is not None:
                return self._channel.get_many(keys)
            found = (self._state.getValue((key,)) for key in keys)
            return [None if row is None else bytes(row[0]) for row in found]

    def apply(self, changes: Mapping[bytes, bytes | None], /) -> None:
        with self._with_grouping_key():
            if self._channel is not None:
                self._channel.apply(changes)
                return
            for key, blob in changes.items():
                if blob is None:
                    self._state.removeKey((key,))
                else:
                    self._state.updateValue((key,), (blob,))

    def for_grouping_key(self, *grouping_key: Any) -> SparkBlobs:
        """Return the blobs of another grouping key of the same Spark partition."""
        other = SparkBlobs(self._state, self._own_key, pipelined=False)
        other._channel = self._channel  # one connection has one channel
        other._grouping_key = grouping_key
        return other

    @contextmanager
    def _with_grouping_key(self) -> Iterator[None]:
        if self._grouping_key == self._own_key:
            yield
            return
        client = _client_of(self._state)
        client.set_implicit_key(self._grouping_key)
        try:
            yield
        finally:
            client.set_implicit_key(self._own_key)


class _Channel:
    """Sends requests to Spark's state server without waiting for each answer."""

    def __init__(self, map_state: Any) -> None:
        # Only where there is Spark.
        from pyspark.sql.streaming.proto import StateMessage_pb2

        self._client = _client_of(map_state)
        self._response: Any = StateMessage_pb2.StateResponse
        # Filling in the same message again takes a quarter of the time of making one.
        self._get_request, self._update_request, self._remove_request = (
            StateMessage_pb2.StateRequest() for _ in range(3)
        )
        name = map_state._stateName  # noqa: SLF001  # the version is known
        self._get_call = _map_state_call(self._get_request, name)
        self._update_call = _map_state_call(self._update_request, name)
        self._remove_call = _map_state_call(self._remove_request, name)
        self._unread = 0
        self._is_broken = False

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        answers = self._exchange(map(self._get, keys), _READ_BYTES)
        return [self._blob_of(answer) if answer else None for answer in answers]

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        self._exchange(
            (
                self._remove(key) if blob is None else self._update(key, blob)
                for key, blob in changes.items()
            ),
            _WRITE_BYTES,
        )

    def _get(self, key: bytes) -> bytes:
        self._get_call.getValue.userKey = self._row(key)
        request: bytes = self._get_request.SerializeToString()
        return request

    def _remove(self, key: bytes) -> bytes:
        self._remove_call.removeKey.userKey = self._row(key)
        request: bytes = self._remove_request.SerializeToString()
        return request

    def _update(self, key: bytes, blob: bytes) -> bytes:
        update = self._update_call.updateValue
        update.userKey, update.value = self._row(key), self._row(blob)
        request: bytes = self._update_request.SerializeToString()
        return request

    def _row(self, value: bytes) -> bytes:
        serialized: bytes = self._client.pickleSer.dumps((value,))
        return serialized

    def _blob_of(self, row: bytes) -> bytes:
        """Return the one value of a row.

        Spark sends a row with its schema, as text that PySpark parses for each row. The value is at
        the end, as text of Latin-1 characters. PySpark parses any other row.
        """
        start = row.find(_BEFORE_VALUE, 0, _LONGEST_SCHEMA) + len(_BEFORE_VALUE) + _LENGTH.size
        if start >= _LENGTH.size + len(_BEFORE_VALUE) and row.endswith(_AFTER_VALUE):
            (length,) = _LENGTH.unpack_from(row, start - _LENGTH.size)
            if start + length + len(_AFTER_VALUE) == len(row):
                return row[start : start + length].decode().encode("latin-1")
        return bytes(self._client._deserialize_from_bytes(row)[0])  # noqa: SLF001  # the version is known

    def _exchange(self, requests: Iterable[bytes], chunk_bytes: int) -> list[bytes]:
        """Send requests and return the values of their answers, in order."""
        if self._is_broken:
            msg = (
                "A request to Spark's state was interrupted, so replies no longer match requests. "
                "Let the batch fail; Spark replays it."
            )
            raise StateStoreError(msg)
        answers: list[bytes] = []
        failures: list[str] = []
        sent: deque[int] = deque()
        try:
            for count, chunk in _chunks(requests, chunk_bytes):
                self._send(chunk, count)
                sent.append(count)
                if len(sent) > 1:
                    self._receive(sent.popleft(), answers, failures)
            while sent:
                self._receive(sent.popleft(), answers, failures)
        finally:
            # The next request would read a reply that is left here.
            self._receive(self._unread, [], [])
        if failures:
            msg = f"Spark's state refused a request: {failures[0]} The batch fails."
            raise StateStoreError(msg)
        return answers

    def _send(self, chunk: bytes, count: int) -> None:
        self._is_broken = True
        self._client.sockfile.write(chunk)
        self._client.sockfile.flush()
        self._unread += count
        self._is_broken = False

    def _receive(self, count: int, answers: list[bytes], failures: list[str]) -> None:
        if self._is_broken:
            return
        read, parsed = self._client.sockfile.read, self._response.FromString
        for _ in range(count):
            self._is_broken = True
            size = read(_SIZE.size)
            if len(size) < _SIZE.size:
                msg = "Spark closed the connection to its state. See Spark's log for the reason."
                raise StateStoreError(msg)
            response = parsed(read(_SIZE.unpack(size)[0]))
            self._is_broken = False
            self._unread -= 1
            if response.statusCode:
                failures.append(response.errorMessage)
            answers.append(response.value)


def _chunks(requests: Iterable[bytes], most_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of requests, each with the number of its requests."""
    frames: list[bytes] = []
    size = 0
    for request in requests:
        if frames and (len(frames) >= 2 * _IN_CHUNK or size + len(request) > most_bytes):
            yield len(frames) // 2, b"".join(frames)
            frames, size = [], 0
        frames += (_FRAME.pack(_MESSAGE_VERSION, len(request)), request)
        size += _FRAME.size + len(request)
    if frames:
        yield len(frames) // 2, b"".join(frames)


def _map_state_call(request: Any, name: str) -> Any:
    call = request.stateVariableRequest.mapStateCall
    call.stateName = name
    return call


def _client_of(map_state: Any) -> Any:
    return map_state._mapStateClient._stateful_processor_api_client  # noqa: SLF001  # there is no public way


def _is_known(*, pipelined: bool | None) -> bool:
    if pipelined is not None:
        return pipelined
    import pyspark

    return pyspark.__version__.startswith(_KNOWN_SPARK)
