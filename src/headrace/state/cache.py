"""A store that holds back repeated writes until commit, as Kafka's record cache does.

The cache keeps decoded values, so an aggregate that is updated a thousand times between two commits
is encoded once. Old values are decoded from the store, apart from what user code may have changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from headrace.records import NO_HEADERS, Headers, ValueAndTimestamp
from headrace.state.key_value import IS_LATEST, FlushListener, TimestampedKeyValue

K = TypeVar("K")
V = TypeVar("V")

_ENTRY_OVERHEAD = 48
"""Bytes that an entry counts for besides key and value."""


class RecordHolder(Protocol):
    """Knows which input record is being processed."""

    record: Any


class RecordCache:
    """The memory that the cached stores of one task share, in bytes."""

    def __init__(self, max_bytes: int, holder: RecordHolder) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.holder = holder


class _Entry:
    """What the cache knows of one key."""

    __slots__ = ("context", "dirty", "headers", "key", "size", "timestamp", "value")

    def __init__(self, key: Any, value: Any, timestamp: int, size: int) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.size = size
        self.dirty = False
        self.context: Any = None
        self.headers: Headers = NO_HEADERS


class CachedTimestampedKeyValue(TimestampedKeyValue[K, V], Generic[K, V]):
    """A `TimestampedKeyValue` behind a cache; changes go downstream when they are written."""

    caching = True

    def __init__(self, *args: Any, cache: RecordCache, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cache = cache
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._dirty: dict[bytes, None] = {}
        self._listener: FlushListener | None = None

    def on_flush(self, listener: FlushListener) -> None:
        """Call ``listener`` with each change that is written."""
        self._listener = listener

    def read(self, key: K) -> tuple[V, int] | None:
        encoded = self._keys.encode(key)
        entry = self._entries.get(encoded)
        if entry is None:
            stored = self._data.get(encoded)
            if stored is None:
                return None
            value = self._value.deserialize(stored[0])
            self._insert(encoded, _Entry(key, value, stored[1], len(stored[0])))
            return value, stored[1]
        self._entries.move_to_end(encoded)
        return None if entry.value is None else (entry.value, entry.timestamp)

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        found = self.read(key)
        return None if found is None else ValueAndTimestamp(*found)

    def write(self, key: K, value: V | None, timestamp: int, headers: Headers = NO_HEADERS) -> int:
        encoded = self._keys.encode(key)
        entry = self._entries.get(encoded)
        if entry is None:
            size = 0 if value is None else len(self._value.serialize(value))
            entry = _Entry(key, value, timestamp, size)
            self._insert(encoded, entry)
        else:
            entry.value = value
            entry.timestamp = timestamp
            self._entries.move_to_end(encoded)
        if entry.dirty:
            del self._dirty[encoded]
        entry.dirty = True
        self._dirty[encoded] = None
        entry.context = self._cache.holder.record
        entry.headers = headers
        if self._cache.used_bytes > self._cache.max_bytes:
            self._evict()
        return IS_LATEST

    def flush(self) -> None:
        """Write every change to the store and hand it downstream, oldest last write first."""
        while self._dirty:
            encoded = next(iter(self._dirty))
            self._write_through(encoded, self._entries[encoded])

    def _insert(self, encoded: bytes, entry: _Entry) -> None:
        self._entries[encoded] = entry
        self._cache.used_bytes += len(encoded) + entry.size + _ENTRY_OVERHEAD

    def _evict(self) -> None:
        while self._entries and self._cache.used_bytes > self._cache.max_bytes:
            encoded, entry = next(iter(self._entries.items()))
            if entry.dirty:
                self._write_through(encoded, entry)
            # Writing through may have run the same store again and dropped the entry itself.
            if self._entries.get(encoded) is entry and not entry.dirty:
                del self._entries[encoded]
                self._cache.used_bytes -= len(encoded) + entry.size + _ENTRY_OVERHEAD

    def _write_through(self, encoded: bytes, entry: _Entry) -> None:
        del self._dirty[encoded]
        entry.dirty = False
        value, timestamp = entry.value, entry.timestamp
        stored = self._data.get(encoded)
        if value is None:
            if stored is None:
                return
            self._data.pop(encoded)
        else:
            self._data.put(encoded, (self._value.serialize(value), timestamp))
        if self._listener is None:
            return
        old = None if stored is None else self._value.deserialize(stored[0])
        # What is emitted carries the record of the last update, not the one that made room.
        holder = self._cache.holder
        before, holder.record = holder.record, entry.context
        try:
            self._listener(entry.key, value, old, timestamp, entry.headers)
        finally:
            holder.record = before

    def _scan(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        merged: dict[bytes, tuple[K, ValueAndTimestamp[V]]] = {}
        if start is None or end is None or start < end:
            for encoded, stored in self._data.scan(start, end):
                merged[encoded] = (self._keys.decode(encoded), self._decode(stored))
        for encoded in self._dirty:
            if (start is not None and encoded < start) or (end is not None and encoded >= end):
                continue
            entry = self._entries[encoded]
            if entry.value is None:
                merged.pop(encoded, None)
            else:
                merged[encoded] = (entry.key, ValueAndTimestamp(entry.value, entry.timestamp))
        return iter([merged[encoded] for encoded in sorted(merged, reverse=reverse)])
