"""The changes of a table that wait to be emitted: one per key, in the order of their times."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias

from headrace.durations import MAX_MS
from headrace.records import NO_HEADERS, ConsumerRecord, Headers, K, V
from headrace.serdes.base import Serde
from headrace.state.maps import OrderedMap, SegmentedMap
from headrace.state.store_times import SuppressTimes

BufferKey: TypeAlias = tuple[int, bytes]
"""A time and the bytes of a key."""

Entry: TypeAlias = tuple[Any, ...]
"""A change: its size in bytes, prior, old and new value, timestamp, partition, offset, topic, then
the headers."""

_BY_TIME, _BY_KEY = 0, 1
_FIRST, _LAST = (0, b""), (MAX_MS + 1, b"")
_NONE = -1
"""Replaces None among the parts of an entry, which are bytes and integers."""
_FIXED_SIZE = 8 + 8 + 8 + 4
"""The bytes that Kafka counts for each entry besides key and value: times, offset, partition."""


class Waiting(NamedTuple):
    """A change that waits."""

    key: Any
    new: Any
    old: Any
    timestamp: int
    headers: Headers
    record: ConsumerRecord | None
    """The input record that made the change, without key and value."""


class SuppressBuffer(Generic[K, V]):
    """One change per key; a later one replaces the earlier one, and keeps its time.

    It has two maps, as the segments of one store::

        0: (time, bytes of the key) -> entry
        1: bytes of the key -> (time,)
    """

    caching = False

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        data: SegmentedMap[Any, Any],
        times: SuppressTimes,
        *,
        persistent: bool = False,
    ) -> None:
        self.name = name
        self.persistent = persistent
        self._key = key
        self._value = value
        self._by_time: OrderedMap[BufferKey, Entry] = data.segment(_BY_TIME)
        self._by_key: OrderedMap[bytes, tuple[int]] = data.segment(_BY_KEY)
        self._head: tuple[BufferKey, Entry] | None = None
        """The first change, if it is known."""
        self._times = times
        self.earliest = times.earliest
        """The time of the first change that waits, or `MAX_MS`."""
        self.records = times.records
        """How many changes wait."""
        self.bytes = times.size
        """How many bytes they take, as Kafka counts them."""
        self.emitted = 0
        """How many changes were emitted since they were last counted."""

    def put(
        self,
        time: int,
        key: K,
        new: V | None,
        old: V | None,
        timestamp: int,
        headers: Headers,
        record: ConsumerRecord | None,
    ) -> None:
        """Add a change.

        ``time`` decides when it is emitted, unless a change of the key waits already. Timestamp,
        headers and record are those of the change.
        """
        encoded = self._key.serialize(key)
        old_part, new_part = self._encoded(old), self._encoded(new)
        found = self._by_key.get(encoded)
        if found is None:
            buffer_key, prior = (time, encoded), old_part
            self._by_key.put(encoded, (time,))
            self.records += 1
            if time < self.earliest:
                self.earliest = time
        else:
            buffer_key = (found[0], encoded)
            before = self._by_time.get(buffer_key)
            assert before is not None, "the index knows it"
            prior = before[1]
            self.bytes -= before[0]
        rest = (*_where(record), *_packed(headers))
        size = _FIXED_SIZE + len(encoded) + _size(prior, old_part, new_part, rest)
        self._by_time.put(buffer_key, (size, prior, old_part, new_part, timestamp, *rest))
        self.bytes += size
        if self._head is not None and buffer_key <= self._head[0]:
            self._head = None
        self._save_times()

    def first(self) -> Waiting:
        """Return the change that comes first; the buffer must not be empty."""
        (_, encoded), entry = self._first()
        _, _, old, new, timestamp, partition, offset, topic, *packed = entry
        headers = _unpacked(packed)
        record = None
        if topic:
            where = topic.decode(), partition, offset
            record = ConsumerRecord(*where, timestamp, None, None, headers)
        key = self._key.deserialize(encoded)
        return Waiting(key, self._decoded(new), self._decoded(old), timestamp, headers, record)

    def remove_first(self) -> None:
        """Forget the change that comes first; the buffer must not be empty."""
        buffer_key, entry = self._first()
        self._by_time.pop(buffer_key)
        self._by_key.pop(buffer_key[1])
        self.records -= 1
        self.bytes -= entry[0]
        self._head = self._by_time.first(_FIRST, _LAST)
        self.earliest = MAX_MS if self._head is None else self._head[0][0]
        self._save_times()

    def prior(self, key: K) -> tuple[bool, V | None]:
        """Return whether a key waits, and the value it had before the first change that waits."""
        encoded = self._key.serialize(key)
        found = self._by_key.get(encoded)
        if found is None:
            return False, None
        entry = self._by_time.get((found[0], encoded))
        assert entry is not None, "the index knows it"
        return True, self._decoded(entry[1])

    def _first(self) -> tuple[BufferKey, Entry]:
        if self._head is None:
            self._head = self._by_time.first(_FIRST, _LAST)
        assert self._head is not None, f"the buffer {self.name} is empty"
        return self._head

    def _encoded(self, value: V | None) -> bytes | int:
        return _NONE if value is None else self._value.serialize(value)

    def _decoded(self, part: bytes | int) -> V | None:
        return None if isinstance(part, int) else self._value.deserialize(part)

    def _save_times(self) -> None:
        times = self._times
        times.earliest, times.records, times.size = self.earliest, self.records, self.bytes


def prefetch_buffered(keys: list[bytes]) -> Generator[tuple[int, list[Any]], list[Any], None]:
    """Yield where a buffer has these keys: see `headrace.state.store_types.base`."""
    found = yield _BY_KEY, keys
    times = zip(keys, found, strict=True)
    yield _BY_TIME, sorted((time[0], key) for key, time in times if time is not None)


def _where(record: ConsumerRecord | None) -> tuple[int, int, bytes]:
    if record is None:
        return -1, -1, b""
    return record.partition, record.offset, record.topic.encode()


def _packed(headers: Headers) -> Sequence[bytes | int]:
    if not headers:
        return ()
    return [
        part
        for name, value in headers
        for part in (name.encode(), _NONE if value is None else value)
    ]


def _unpacked(packed: list[Any]) -> Headers:
    if not packed:
        return NO_HEADERS
    return Headers(
        (name.decode(), None if isinstance(value, int) else value)
        for name, value in zip(packed[::2], packed[1::2], strict=True)
    )


def _size(
    prior: bytes | int, old: bytes | int, new: bytes | int, rest: tuple[bytes | int, ...]
) -> int:
    """Return the bytes Kafka counts: an old value that equals the prior one counts once."""
    size = 0 if old == prior or isinstance(old, int) else len(old)
    for part in (prior, new, *rest):
        if isinstance(part, bytes):
            size += len(part)
    return size
