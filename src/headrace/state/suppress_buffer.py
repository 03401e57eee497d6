"""The changes of a table that wait to be emitted: one per key, in the order of their times."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from headrace.records import NO_HEADERS, ConsumerRecord, Headers
from headrace.serdes.base import Serde
from headrace.state.maps import OrderedMap, SegmentedMap

K = TypeVar("K")
V = TypeVar("V")

Place: TypeAlias = tuple[int, bytes]
"""A time and the bytes of a key."""

Entry: TypeAlias = tuple[Any, ...]
"""What waits: bytes it takes, prior, old and new value, timestamp, partition, offset, topic, then
the headers."""

NEVER = 2**63 - 1
"""The earliest time of a buffer that is empty."""

_BY_TIME, _BY_KEY = 0, 1
_FIRST, _LAST = (0, b""), (NEVER + 1, b"")
_NONE = -1
"""Stands for None among the parts of an entry, which are bytes and integers."""
_FIXED_SIZE = 8 + 8 + 8 + 4
"""What Kafka counts for an entry besides what varies: its time, timestamp, offset, partition."""


class Waiting(NamedTuple):
    """A change that waits."""

    key: Any
    new: Any
    old: Any
    timestamp: int
    headers: Headers
    record: ConsumerRecord | None
    """The place of the input record that made the change; it has neither key nor value."""


class SuppressBuffer(Generic[K, V]):
    """One change per key; a later one takes the place, and the time, of the earlier one.

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
        memory: MutableMapping[str, Any],
        *,
        persistent: bool = False,
    ) -> None:
        self.name = name
        self.persistent = persistent
        self._key = key
        self._value = value
        self._by_time: OrderedMap[Place, Entry] = data.segment(_BY_TIME)
        self._by_key: OrderedMap[bytes, tuple[int]] = data.segment(_BY_KEY)
        self._head: tuple[Place, Entry] | None = None
        """What comes first, if it is known."""
        self._memory = memory
        self.earliest: int = memory.get("earliest", NEVER)
        """The time of the first change that waits, or `NEVER`."""
        self.records: int = memory.get("records", 0)
        """How many changes wait."""
        self.bytes: int = memory.get("size", 0)
        """How many bytes they take, as Kafka counts them."""

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
        """Let a change wait.

        Args:
            time: What its place depends on, unless the key waits already.
            key: The key.
            new: The new value.
            old: The old value.
            timestamp: When the change happened.
            headers: The headers of the record that made it.
            record: The input record that made it.
        """
        encoded = self._key.serialize(key)
        old_part, new_part = self._encoded(old), self._encoded(new)
        found = self._by_key.get(encoded)
        if found is None:
            place, prior = (time, encoded), old_part
            self._by_key.put(encoded, (time,))
            self.records += 1
            if time < self.earliest:
                self.earliest = time
        else:
            place = (found[0], encoded)
            before = self._by_time.get(place)
            assert before is not None, "the index knows it"
            prior = before[1]
            self.bytes -= before[0]
        rest = (*_where(record), *_packed(headers))
        size = _FIXED_SIZE + len(encoded) + _size(prior, old_part, new_part, rest)
        self._by_time.put(place, (size, prior, old_part, new_part, timestamp, *rest))
        self.bytes += size
        if self._head is not None and place <= self._head[0]:
            self._head = None
        self._remember()

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
        place, entry = self._first()
        self._by_time.pop(place)
        self._by_key.pop(place[1])
        self.records -= 1
        self.bytes -= entry[0]
        self._head = self._by_time.first(_FIRST, _LAST)
        self.earliest = NEVER if self._head is None else self._head[0][0]
        self._remember()

    def prior(self, key: K) -> tuple[bool, V | None]:
        """Return whether a key waits, and the value it had before the first change that waits."""
        encoded = self._key.serialize(key)
        found = self._by_key.get(encoded)
        if found is None:
            return False, None
        entry = self._by_time.get((found[0], encoded))
        assert entry is not None, "the index knows it"
        return True, self._decoded(entry[1])

    def _first(self) -> tuple[Place, Entry]:
        if self._head is None:
            self._head = self._by_time.first(_FIRST, _LAST)
        assert self._head is not None, f"the buffer {self.name} is empty"
        return self._head

    def _encoded(self, value: V | None) -> bytes | int:
        return _NONE if value is None else self._value.serialize(value)

    def _decoded(self, part: bytes | int) -> V | None:
        return None if isinstance(part, int) else self._value.deserialize(part)

    def _remember(self) -> None:
        memory = self._memory
        memory["earliest"], memory["records"] = self.earliest, self.records
        memory["size"] = self.bytes


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
