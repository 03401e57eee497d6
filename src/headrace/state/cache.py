"""Stores that hold back repeated writes until commit, as Kafka's record cache does.

The cache keeps decoded values, so an aggregate that is updated a thousand times between two commits
is encoded once. Old values are decoded from the store, apart from what user code may have changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeAlias

from sortedcontainers import SortedList

from headrace.errors import StateStoreError, StreamsError
from headrace.records import NO_HEADERS, Headers, K, V, ValueAndTimestamp
from headrace.state.key_value import IS_LATEST, TimestampedKeyValue

FlushListener: TypeAlias = Callable[[Any, Any, Any, int, Headers], None]
"""Called for each entry a cache writes: key, new value, old value, timestamp, headers."""

_ENTRY_OVERHEAD = 45
"""Bytes that an entry counts for in Kafka besides key, value, topic and headers."""

TIMESTAMP_SIZE = 8

_ROOMY = 1 << 20
"""A cache of at least this many bytes estimates the size of most values."""
_MEASUREMENTS = 64
"""The number of values that such a cache measures."""


class RecordHolder(Protocol):
    """Knows which input record is being processed, and the timestamp it has by now."""

    record: Any
    timestamp: int


class CacheBudget:
    """The memory that the cached stores of one task share, in bytes."""

    def __init__(self, max_bytes: int, holder: RecordHolder) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.holder = holder


class CacheEntry:
    """The state of one key in the cache."""

    __slots__ = (
        "context",
        "dirty",
        "headers",
        "key",
        "size",
        "stored",
        "timestamp",
        "topic",
        "used",
        "value",
        "value_size",
        "written",
    )

    def __init__(self, key: Any, value: Any = None, timestamp: int = -1) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.stored: Any = None
        """The written entry; the value is then None, because downstream may still use it."""
        self.size = 0
        """How many bytes it counts for, without the value."""
        self.value_size = 0
        self.dirty = False
        self.used = 0
        """When it was last read or written, counted in uses of its store."""
        self.written = 0
        """When it was last written, counted likewise."""
        self.context: Any = None
        self.topic: str | None = None
        self.headers: Headers = NO_HEADERS


def _last_write(item: tuple[Any, CacheEntry]) -> int:
    return item[1].written


class RecordCache(ABC):
    """The base of all caches: the entries they hold, and the order in which they write and evict.

    A cache key identifies an entry of the store: bytes, or a tuple of bytes and integers. A full
    cache evicts the least recently used entry. As in Kafka, if that one is dirty, the cache writes
    all dirty entries.
    """

    caching = True
    name: str

    def __init__(self, *arguments: Any, cache: CacheBudget, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cache = cache
        self._cached: dict[Any, CacheEntry] = {}
        self._dirty: dict[Any, CacheEntry] = {}
        self._is_roomy = cache.max_bytes >= _ROOMY
        self._measurements = 0
        self._typical_size = 0
        self._tick = 0
        self._oldest: deque[tuple[int, Any]] = deque()
        self.cached_at = self._cached.get
        """Returns the entry of a cache key, or None; its value is None if it must be decoded."""
        self._order: SortedList[Any] | None = None
        self._listener: FlushListener | None = None
        self._old_values = True

    def on_flush(self, listener: FlushListener, *, old_values: bool = True) -> None:
        """Call ``listener`` with each change that is written."""
        self._listener = listener
        self._old_values = old_values

    def flush(self) -> None:
        """Write every change to the store and hand it downstream, oldest last write first."""
        if self._dirty:
            self._write_all(self._take_dirty())

    def release(self) -> None:
        """Forget everything: the store is not used any more."""
        self._cached.clear()
        self._dirty.clear()
        self._oldest.clear()
        self._order = None

    def hold(self, cache_key: Any, key: Any, value: Any, timestamp: int, headers: Headers) -> int:
        """Hold a write; return `IS_LATEST`."""
        entry = self._cached.get(cache_key)
        if entry is None:
            return self._hold_new(cache_key, CacheEntry(key), value, timestamp, headers)
        return self.hold_again(cache_key, entry, value, timestamp, headers)

    def hold_again(
        self, cache_key: Any, entry: CacheEntry, value: Any, timestamp: int, headers: Headers
    ) -> int:
        """Hold a write to an entry that `held_at` returned; return `IS_LATEST`."""
        record = self._cache.holder.record
        if (
            entry.dirty
            and entry.headers is headers
            and entry.value_size
            and value is not None
            and record is not None
            and entry.topic is record.topic
        ):
            # One more update of a key from the same topic: nothing to count again.
            entry.value = value
            entry.timestamp = timestamp
            entry.context = record
            self._tick = entry.used = entry.written = self._tick + 1
            return IS_LATEST
        if self._is_roomy and entry.value_size and value is not None:
            return self._hold_roughly(cache_key, entry, value, timestamp, headers)
        return self._hold_new(cache_key, entry, value, timestamp, headers)

    def _hold_roughly(
        self, cache_key: Any, entry: CacheEntry, value: Any, timestamp: int, headers: Headers
    ) -> int:
        """Hold a write in a cache so large that sizes need not be exact."""
        if not entry.dirty and self._cached.get(cache_key) is not entry:
            return self._hold_new(cache_key, entry, value, timestamp, headers)  # it was evicted
        record = self._cache.holder.record
        entry.value = value
        entry.timestamp = timestamp
        entry.stored = None
        entry.context = record
        entry.headers = headers
        entry.topic = None if record is None else record.topic
        if not entry.dirty:
            entry.dirty = True
            self._dirty[cache_key] = entry
        self._tick = entry.used = entry.written = self._tick + 1
        return IS_LATEST

    def _hold_new(
        self, cache_key: Any, entry: CacheEntry, value: Any, timestamp: int, headers: Headers
    ) -> int:
        record = self._cache.holder.record
        entry.value = value
        entry.timestamp = timestamp
        entry.stored = None
        entry.dirty = True
        entry.context = record
        entry.headers = headers
        entry.topic = None if record is None else record.topic
        value_size = 0 if value is None else entry.value_size or self._measured(value)
        self._resize(entry, value_size, self._size(cache_key, record, headers))
        if self._order is not None and cache_key not in self._cached:
            self._order.add(cache_key)
        self._cached[cache_key] = self._dirty[cache_key] = entry
        self._tick = entry.used = entry.written = self._tick + 1
        if self._cache.used_bytes > self._cache.max_bytes:
            self._evict()
        return IS_LATEST

    def _found(self, cache_key: Any) -> CacheEntry | None:
        """Return the entry of a cache key, with its value; its use counts."""
        entry = self._cached.get(cache_key)
        if entry is None:
            return None
        self._tick = entry.used = self._tick + 1
        if entry.stored is not None:
            entry.value = self._decoded(entry.stored)
            entry.stored = None
        return entry

    def _between(self, start: Any, end: Any) -> list[tuple[Any, CacheEntry]]:
        """Return the entries of the cache keys from ``start`` to before ``end``, in order."""
        if not self._cached:
            return []
        if self._order is None:
            self._order = SortedList(self._cached)
        cache_keys = list(self._order.irange(start, end, inclusive=(True, False)))
        found = [(cache_key, self._cached[cache_key]) for cache_key in cache_keys]
        for _, entry in found:
            self._tick = entry.used = self._tick + 1
        return found

    def _cached_value(self, entry: CacheEntry) -> Any:
        return entry.value if entry.stored is None else self._decoded(entry.stored)

    def _size(self, cache_key: Any, record: Any, headers: Headers) -> int:
        size = _ENTRY_OVERHEAD + self._key_size(cache_key)
        if record is not None:
            size += len(record.topic)
        if headers is not NO_HEADERS:
            size += sum(len(name) + len(value or b"") for name, value in headers)
        return size

    def _measured(self, value: Any) -> int:
        """Return how many bytes a value counts for; an estimate, if the cache is large."""
        if self._measurements == _MEASUREMENTS and self._is_roomy:
            return self._typical_size
        # Encoding each value once more only to measure it would cost too much.
        size = self._value_size(value)
        self._measurements += self._measurements < _MEASUREMENTS
        self._typical_size += (size - self._typical_size) // self._measurements
        return size

    def _resize(self, entry: CacheEntry, value_size: int, size: int) -> None:
        self._cache.used_bytes += size - entry.size + value_size - entry.value_size
        entry.size = size
        entry.value_size = value_size

    def _forget(self, cache_key: Any) -> None:
        entry = self._cached.pop(cache_key)
        self._cache.used_bytes -= entry.size + entry.value_size
        if self._order is not None:
            self._order.remove(cache_key)

    def _evict(self) -> None:
        while self._cached and self._cache.used_bytes > self._cache.max_bytes:
            cache_key, entry = self._least_recently_used()
            self._forget(cache_key)
            if entry.dirty:
                del self._dirty[cache_key]
                self._write_all([(cache_key, entry), *self._take_dirty()])

    def _least_recently_used(self) -> tuple[Any, CacheEntry]:
        # Sorting all entries from time to time is cheaper than moving one at each of its uses.
        # Entries used since the last sort, and new ones, come after all others.
        while True:
            while self._oldest:
                used, cache_key = self._oldest.popleft()
                entry = self._cached.get(cache_key)
                if entry is not None and entry.used == used:
                    return cache_key, entry
            self._oldest.extend(
                sorted((entry.used, cache_key) for cache_key, entry in self._cached.items())
            )

    def _take_dirty(self) -> list[tuple[Any, CacheEntry]]:
        """Return the entries that are not yet written, oldest last write first; they now are."""
        pending = sorted(self._dirty.items(), key=_last_write)
        self._dirty.clear()
        return pending

    def _write_all(self, pending: list[tuple[Any, CacheEntry]]) -> None:
        for _, entry in pending:
            entry.dirty = False
        for cache_key, entry in pending:
            self._write_through(cache_key, entry)
        for cache_key, entry in pending:
            if (
                entry.value is None
                and entry.stored is None
                and self._cached.get(cache_key) is entry
            ):
                self._forget(cache_key)
        if self._cache.used_bytes > self._cache.max_bytes:
            self._evict()

    def _write_through(self, cache_key: Any, entry: CacheEntry) -> None:
        value, listener = entry.value, self._listener
        old = None
        if listener is not None and (self._old_values or value is None):
            old = self._stored_value(cache_key)
            if value is None and old is None:
                return
        # The emitted record has the context of the last update, not of the record that evicts.
        holder = self._cache.holder
        before, holder.record = holder.record, entry.context
        since, holder.timestamp = holder.timestamp, entry.timestamp
        try:
            try:
                stored = entry.stored = self._store(cache_key, value, entry.timestamp)
            except MemoryError:
                raise
            except Exception as error:
                if isinstance(error, StreamsError) and not error.is_of_record:
                    raise
                raise self._unwritten(entry, error) from error
            entry.value = None
            if self._cached.get(cache_key) is entry:
                # Values that grew since they came in are counted once they are encoded anyway.
                size = self._stored_size(stored)
                self._cache.used_bytes += size - entry.value_size
                entry.value_size = size
            if listener is not None:
                key = self._emitted_key(cache_key, entry.key)
                listener(key, value, old, entry.timestamp, entry.headers)
        finally:
            holder.record = before
            holder.timestamp = since

    def _unwritten(self, entry: CacheEntry, error: Exception) -> StreamsError:
        # A value that is replaced before it is written is never encoded, so this shows late.
        is_retriable = isinstance(error, OSError | ImportError)
        return (StreamsError if is_retriable else StateStoreError)(
            f"Store {self.name!r} cannot write the value of key {entry.key!r}: {error} "
            "The step that put it there must return what the serde of the store can write."
        )

    @abstractmethod
    def _store(self, cache_key: Any, value: Any, timestamp: int) -> Any:
        """Write a value to the store, None deletes; return what is stored."""

    @abstractmethod
    def _stored_value(self, cache_key: Any) -> Any:
        """Return the value that the store has for a cache key, or None."""

    @abstractmethod
    def _decoded(self, stored: Any) -> Any:
        """Return the value of what is stored."""

    @abstractmethod
    def _emitted_key(self, cache_key: Any, key: Any) -> Any:
        """Return the key of the record that goes downstream."""

    @abstractmethod
    def _key_size(self, cache_key: Any) -> int:
        """Return how many bytes Kafka counts for the key of an entry."""

    @abstractmethod
    def _value_size(self, value: Any) -> int:
        """Return how many bytes Kafka counts for a value."""

    @abstractmethod
    def _stored_size(self, stored: Any) -> int:
        """Return how many bytes Kafka counts for what is stored; None: nothing."""


class CachedTimestampedKeyValue(RecordCache, TimestampedKeyValue[K, V], Generic[K, V]):
    """A `TimestampedKeyValue` behind a cache; changes go downstream when they are written."""

    def read_at(self, encoded: bytes, key: K) -> tuple[V, int] | None:
        entry = self._cached.get(encoded)
        if entry is not None:
            self._tick = entry.used = self._tick + 1
            if entry.stored is not None:
                entry.value = self._decoded(entry.stored)
                entry.stored = None
            return None if entry.value is None else (entry.value, entry.timestamp)
        stored = self._data.get(encoded)
        if stored is None:
            return None
        entry = self._loaded(encoded, key, stored)
        return entry.value, entry.timestamp

    def load(self, encoded: bytes, key: K) -> CacheEntry | None:
        """Hold what the store has of a key that is not held; None if it has nothing."""
        stored = self._data.get(encoded)
        return None if stored is None else self._loaded(encoded, key, stored)

    def _loaded(self, encoded: bytes, key: K, stored: Any) -> CacheEntry:
        data, timestamp = stored
        entry = CacheEntry(key, self._value.deserialize(data), timestamp)
        entry.size = _ENTRY_OVERHEAD + len(encoded)
        entry.value_size = TIMESTAMP_SIZE + len(data)
        cache = self._cache
        cache.used_bytes += entry.size + entry.value_size
        self._cached[encoded] = entry
        self._tick = entry.used = self._tick + 1
        if self._order is not None:
            self._order.add(encoded)
        if cache.used_bytes > cache.max_bytes:
            self._evict()
        return entry

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        found = self.read(key)
        return None if found is None else ValueAndTimestamp(*found)

    write_at = RecordCache.hold  # type: ignore[assignment]  # the same, with other names

    def _scan(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        merged: dict[bytes, tuple[K, ValueAndTimestamp[V]]] = {}
        if start is None or end is None or start < end:
            for encoded, stored in self._data.scan(start, end):
                merged[encoded] = (self._keys.decode(encoded), self._decode(stored))
            for encoded, entry in self._between(start, end):
                value = self._cached_value(entry)
                if value is None:
                    merged.pop(encoded, None)
                else:
                    merged[encoded] = (entry.key, ValueAndTimestamp(value, entry.timestamp))
        return iter([merged[encoded] for encoded in sorted(merged, reverse=reverse)])

    def _store(self, cache_key: bytes, value: V | None, timestamp: int) -> Any:
        if value is None:
            self._data.pop(cache_key)
            return None
        stored = (self._value.serialize(value), timestamp)
        self._data.put(cache_key, stored)
        return stored

    def _stored_value(self, cache_key: bytes) -> V | None:
        stored = self._data.get(cache_key)
        return None if stored is None else self._value.deserialize(stored[0])

    def _decoded(self, stored: Any) -> V:
        return self._value.deserialize(stored[0])

    def _emitted_key(self, _cache_key: bytes, key: K) -> K:
        return key

    def _key_size(self, cache_key: bytes) -> int:
        return len(cache_key)

    def _value_size(self, value: V) -> int:
        return TIMESTAMP_SIZE + len(self._value.serialize(value))

    def _stored_size(self, stored: Any) -> int:
        return 0 if stored is None else TIMESTAMP_SIZE + len(stored[0])
