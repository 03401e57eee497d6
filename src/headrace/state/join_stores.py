"""Buffers of stream joins: records without a partner, and records that wait for a table."""

from __future__ import annotations

from heapq import merge
from typing import Any, Generic, NamedTuple, TypeAlias

from headrace.durations import MAX_MS
from headrace.records import ConsumerRecord, Headers, K, V
from headrace.serdes.base import Serde
from headrace.state.key_value import KeyCodec
from headrace.state.maps import OrderedMap
from headrace.state.store_times import JoinBufferTimes, UnmatchedTimes

RIGHT, LEFT = 0, 1
"""The sides of a join, in the order in which unmatched records of one time come out."""

UnmatchedKey: TypeAlias = tuple[int, int, bytes]
"""The entry key of unmatched records: side, timestamp, encoded key."""

BufferKey: TypeAlias = tuple[int, bytes, int]
"""The entry key of a buffered record: timestamp, encoded key, sequence number."""


class UnmatchedRecord(NamedTuple):
    """A record of a left or outer join whose window closed without a partner."""

    side: int
    key: Any
    value: Any
    timestamp: int
    entry_key: UnmatchedKey


class Unmatched(Generic[K]):
    """The records of a join that found no partner yet, and the time of the join.

    An entry has the values of one side, time and key in the order of their arrival. ``values`` are
    the serdes of the right and of the left values.
    """

    caching = False

    def __init__(
        self,
        name: str,
        key: Serde[K],
        values: tuple[Serde[Any], Serde[Any]],
        data: OrderedMap[Any, tuple[bytes, ...]],
        times: UnmatchedTimes,
        *,
        persistent: bool = False,
    ) -> None:
        self.name = name
        self.persistent = persistent
        self.stream_time = times.stream_time
        """The latest time that either side saw."""
        self.earliest = times.earliest
        """The time from which Kafka takes records to wait; see `look`."""
        self._keys = KeyCodec(name, key)
        self._values = values
        self._data = data
        self._times = times

    def advance(self, timestamp: int) -> None:
        """Set the time of the join to a later one."""
        self.stream_time = self._times.stream_time = timestamp

    def set_earliest(self, timestamp: int) -> None:
        """Set the time from which on records wait."""
        self.earliest = self._times.earliest = timestamp

    def add(self, side: int, key: K, value: Any, timestamp: int) -> None:
        """Hold a record back."""
        entry_key = (side, timestamp, self._keys.encode(key))
        waiting = self._data.get(entry_key) or ()
        self._data.put(entry_key, (*waiting, self._values[side].serialize(value)))
        if timestamp < self.earliest:
            self.set_earliest(timestamp)

    def remove(self, side: int, key: K, timestamp: int) -> None:
        """Forget the records of a side, key and time: they found a partner."""
        self._data.pop((side, timestamp, self._keys.encode(key)))

    def forget(self, entry_key: UnmatchedKey) -> None:
        """Forget the records of an entry key: they were emitted."""
        self._data.pop(entry_key)

    def closed(self, left_until: int, right_until: int) -> list[UnmatchedRecord]:
        """Return the records before the time of their side: by time, right before left, key."""
        data, decode_key = self._data, self._keys.decode
        found = merge(
            data.scan((RIGHT,), (RIGHT, right_until)),
            data.scan((LEFT,), (LEFT, left_until)),
            key=_in_order,
        )
        return [
            UnmatchedRecord(
                entry_key[0],
                decode_key(entry_key[2]),
                self._values[entry_key[0]].deserialize(value),
                entry_key[1],
                entry_key,
            )
            for entry_key, values in found
            for value in values
        ]

    def look(self, left_until: int, right_until: int) -> None:
        """Set `earliest` as Kafka does when it emits the records before these times.

        Kafka reads all records in order, stops behind the first of each side that must still wait,
        and keeps the time of the last record that it read. A record that waits may have an earlier
        time, so it can come out late.
        """
        data = self._data
        left = data.first((LEFT, left_until), (LEFT + 1,))
        right = data.first((RIGHT, right_until), (RIGHT + 1,))
        if left is None or right is None:
            ends = (data.last((LEFT,), (LEFT + 1,)), data.last((RIGHT,), (RIGHT + 1,)))
            seen = max((end[0][1] for end in ends if end is not None), default=MAX_MS)
        else:
            seen = self._time_behind(max(left, right, key=_in_order))
        self.set_earliest(seen)

    def _time_behind(self, entry: tuple[UnmatchedKey, tuple[bytes, ...]]) -> int:
        """Return the time of the record behind the first of an entry, or its own if it is last."""
        (side, time, key), values = entry
        if len(values) > 1:
            return time
        same = self._data.first((side, time, key + b"\0"), (side + 1,))
        if side == RIGHT:
            other = self._data.first((LEFT, time), (LEFT + 1,))
        else:
            other = self._data.first((RIGHT, time + 1), (RIGHT + 1,))
        return min((found[0][1] for found in (same, other) if found is not None), default=time)


def _in_order(entry: tuple[UnmatchedKey, Any]) -> UnmatchedKey:
    side, time, key = entry[0]
    return time, side, key


class Waiting(NamedTuple):
    """A record that waited for a table, and the input record that it comes from."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    origin: ConsumerRecord | None
    buffer_key: BufferKey


class JoinBuffer(Generic[K, V]):
    """The records of a stream that wait ``grace_ms`` for late records of a versioned table."""

    caching = False
    persistent = True

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        data: OrderedMap[Any, tuple[Any, ...]],
        times: JoinBufferTimes,
        *,
        grace_ms: int,
    ) -> None:
        self.name = name
        self._keys = KeyCodec(name, key)
        self._value = value
        self._data = data
        self._times = times
        self._grace_ms = grace_ms
        self._time = times.time

    def put(
        self, key: K, value: V, timestamp: int, headers: Headers, origin: ConsumerRecord | None
    ) -> bool:
        """Hold a record back; return whether it must wait, which one that is late need not."""
        encoded = self._keys.encode(key)
        if timestamp < self._time - self._grace_ms:
            return False
        self._times.sequence += 1
        packed = (self._value.serialize(value), *_packed_origin(origin), *_packed_headers(headers))
        self._data.put((timestamp, encoded, self._times.sequence), packed)
        if timestamp > self._time:
            self._time = self._times.time = timestamp
        return True

    def due(self) -> list[Waiting]:
        """Return the records that waited long enough: by time, key, and arrival."""
        decode_key, decode = self._keys.decode, self._value.deserialize
        waited: list[Waiting] = []
        for buffer_key, packed in self._data.scan(None, (self._time - self._grace_ms + 1,)):
            value, topic, partition, offset, *rest = packed
            headers = _unpacked_headers(rest)
            time, encoded, _ = buffer_key
            origin = None
            if topic:
                name = topic.decode()
                origin = ConsumerRecord(name, partition, offset, time, None, None, headers)
            waited.append(
                Waiting(decode_key(encoded), decode(value), time, headers, origin, buffer_key)
            )
        return waited

    def forget(self, buffer_key: BufferKey) -> None:
        """Forget a record: it was joined."""
        self._data.pop(buffer_key)


def _packed_origin(origin: ConsumerRecord | None) -> tuple[bytes, int, int]:
    if origin is None:
        return b"", -1, -1
    return origin.topic.encode(), origin.partition, origin.offset


def _packed_headers(headers: Headers) -> list[bytes | int]:
    # A header without a value is its name and a number, as stores know no None.
    return [
        part for name, value in headers for part in (name.encode(), 0 if value is None else value)
    ]


def _unpacked_headers(parts: list[Any]) -> Headers:
    return Headers(
        (name.decode(), None if value == 0 else value)
        for name, value in zip(parts[::2], parts[1::2], strict=True)
    )
