"""The changes of a table that wait to be emitted: one per key, in the order of their times."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from headrace.records import NO_HEADERS, ConsumerRecord, Headers
from headrace.serdes.base import Serde
from headrace.state.maps import OrderedMap

K = TypeVar("K")
V = TypeVar("V")

Place: TypeAlias = tuple[int, bytes]
"""A time and the bytes of a key."""

Entry: TypeAlias = tuple[Any, ...]
"""What waits: prior, old and new value, timestamp, partition, offset, topic, then the headers."""

NEVER = 2**63 - 1
"""The earliest time of a buffer that is empty."""

_INDEX = -1
"""Stands where the time stands in the keys of the index: no real time is negative."""
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

    ::

        (time, bytes of the key) -> entry
        (-1, bytes of the key)   -> (time,)
    """

    caching = False

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        data: OrderedMap[Place, Entry],
        memory: MutableMapping[str, Any],
        *,
        persistent: bool = False,
    ) -> None:
        self.name = name
        self.persistent = persistent
        self._key = key
        self._value = value
        self._data = data
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
        found = self._data.get((_INDEX, encoded))
        if found is None:
            place, prior = (time, encoded), old_part
            self._data.put((_INDEX, encoded), (time,))
            self.records += 1
            self.earliest = min(self.earliest, time)
        else:
            place = (found[0], encoded)
            before = self._data.get(place)
            assert before is not None, "the index knows it"
            prior = before[0]
            self.bytes -= _size(encoded, before)
        entry = (prior, old_part, new_part, timestamp, *_where(record), *_packed(headers))
        self._data.put(place, entry)
        self.bytes += _size(encoded, entry)
        self._remember()

    def first(self) -> Waiting:
        """Return the change that comes first; the buffer must not be empty."""
        (_, encoded), entry = self._head()
        _, old, new, timestamp, partition, offset, topic, *packed = entry
        headers = _unpacked(packed)
        record = None
        if topic:
            where = topic.decode(), partition, offset
            record = ConsumerRecord(*where, timestamp, None, None, headers)
        key = self._key.deserialize(encoded)
        return Waiting(key, self._decoded(new), self._decoded(old), timestamp, headers, record)

    def remove_first(self) -> None:
        """Forget the change that comes first; the buffer must not be empty."""
        place, entry = self._head()
        self._data.pop(place)
        self._data.pop((_INDEX, place[1]))
        self.records -= 1
        self.bytes -= _size(place[1], entry)
        following = self._data.first(_FIRST, _LAST)
        self.earliest = NEVER if following is None else following[0][0]
        self._remember()

    def prior(self, key: K) -> tuple[bool, V | None]:
        """Return whether a key waits, and the value it had before the first change that waits."""
        encoded = self._key.serialize(key)
        found = self._data.get((_INDEX, encoded))
        if found is None:
            return False, None
        entry = self._data.get((found[0], encoded))
        assert entry is not None, "the index knows it"
        return True, self._decoded(entry[0])

    def _head(self) -> tuple[Place, Entry]:
        found = self._data.first(_FIRST, _LAST)
        assert found is not None, f"the buffer {self.name} is empty"
        return found

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


def _packed(headers: Headers) -> list[bytes | int]:
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


def _size(key: bytes, entry: Entry) -> int:
    """Return the bytes Kafka counts: an old value that equals the prior one counts once."""
    prior, old, new, _, _, _, topic, *headers = entry
    varying = (prior, None if old == prior else old, new, topic, *headers)
    return _FIXED_SIZE + len(key) + sum(len(part) for part in varying if isinstance(part, bytes))
