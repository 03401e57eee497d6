"""Window and session stores that hold back repeated writes until commit.

As in Kafka, reads see the entries of the cache whatever their age, and a held write does not change
the store's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple

from headrace.durations import MAX_MS
from headrace.records import NO_HEADERS, Headers, K, V
from headrace.serdes.base import Serde
from headrace.state.cache import TIMESTAMP_SIZE, CacheEntry, RecordCache
from headrace.state.segmented_entries import Entry, EntryKey
from headrace.state.session import SessionEntries
from headrace.state.window import WindowEntries
from headrace.state.windowed_reads import KeyRange
from headrace.windows.window import Window, Windowed

_WINDOW_KEY_OVERHEAD = 20
"""Bytes that Kafka adds to the key of a window: segment, start and sequence."""
_SESSION_KEY_OVERHEAD = 24
"""Bytes that Kafka adds to the key of a session: segment, end and start."""


class CachedValue(NamedTuple):
    """A decoded value that a scan found in the cache, which still uses it."""

    value: Any
    timestamp: int


class _CachedEntries(RecordCache):
    """The base of cached windows and sessions: scans see the entries of the cache."""

    _serde: Serde[Any]
    value_of: Callable[[Any], Any]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._decode = self.value_of
        self.value_of = self._unshared

    def _unshared(self, stored: Any) -> Any:
        if type(stored) is CachedValue:
            return self._serde.deserialize(self._serde.serialize(stored.value))
        return self._decode(stored)

    def _decoded(self, stored: Any) -> Any:
        return self._decode(stored)

    def _merged(
        self,
        entries: Iterator[Entry],
        cached: list[tuple[EntryKey, CacheEntry]],
        order: Callable[[Entry], EntryKey],
        *,
        reverse: bool,
    ) -> Iterator[Entry]:
        """Return the entries of a store with those of its cache laid over them."""
        if not cached:
            return entries
        merged: dict[EntryKey, Any] = dict(entries)
        for cache_key, entry in cached:
            value = self._cached_value(entry)
            if value is None:
                merged.pop(cache_key, None)
            else:
                merged[cache_key] = CachedValue(value, entry.timestamp)
        return iter(sorted(merged.items(), key=order, reverse=reverse))


class CachedWindow(_CachedEntries, WindowEntries[K, V], Generic[K, V]):
    """A `WindowEntries` behind a cache; changes go downstream when they are written.

    Cache keys are ordered as the store is: ``(key, start)``, or ``(start, key)`` by time.
    """

    def cache_key_of(self, key: K, start: int) -> Any:
        """Return the cache key of a window."""
        encoded = self._keys.encode(key)
        return (start, encoded) if self._time_first else (encoded, start)

    def entry_at(self, cache_key: Any, key: K) -> CacheEntry:
        """Return the entry of a cache key, or else a new one, not held, with what the store has."""
        entry = self._cached.get(cache_key)
        if entry is None:
            start, encoded = cache_key if self._time_first else cache_key[::-1]
            stored = super().get_entry(encoded, start)
            if stored is None:
                return CacheEntry(key)
            return CacheEntry(key, self._decode(stored), self.timestamp_of(stored))
        if entry.stored is not None:
            entry.value = self._decode(entry.stored)
            entry.stored = None
        return entry

    def read(self, key: K, start: int) -> tuple[Any, int] | None:
        encoded = self._keys.encode(key)
        entry = self._found((start, encoded) if self._time_first else (encoded, start))
        if entry is not None:
            return None if entry.value is None else (entry.value, entry.timestamp)
        stored = super().get_entry(encoded, start)
        return None if stored is None else (self._decode(stored), self.timestamp_of(stored))

    def write(
        self, key: K, start: int, value: Any, timestamp: int = -1, headers: Headers = NO_HEADERS
    ) -> None:
        self.hold(self.cache_key_of(key, start), key, value, timestamp, headers)

    def get_entry(self, encoded: bytes, start: int) -> Any:
        entry = self._found((start, encoded) if self._time_first else (encoded, start))
        if entry is None:
            return super().get_entry(encoded, start)
        return None if entry.value is None else CachedValue(entry.value, entry.timestamp)

    def entries_of_key(
        self, encoded: bytes, first: int, last: int, *, reverse: bool
    ) -> Iterator[Entry]:
        entries = super().entries_of_key(encoded, first, last, reverse=reverse)
        if self._time_first:
            cached = self._cached_between((encoded, encoded), first, last)
        else:
            cached = self._between((encoded, first), (encoded, last + 1))
        return self._merged(entries, cached, _by_entry_key, reverse=reverse)

    def entries_of_keys(
        self, keys: KeyRange, first: int, last: int, *, reverse: bool
    ) -> Iterator[Entry]:
        entries = super().entries_of_keys(keys, first, last, reverse=reverse)
        cached = self._cached_between(keys, first, last)
        by_key = self.persistent and not self._time_first
        order = self._entries.by_segment if by_key else _by_start
        return self._merged(entries, cached, order, reverse=reverse)

    def _cached_between(
        self, keys: KeyRange, first: int, last: int
    ) -> list[tuple[EntryKey, CacheEntry]]:
        first_key, last_key = keys
        if self._time_first:
            by_time = self._between((first,), (last + 1,))
            cached = [((encoded, start), entry) for (start, encoded), entry in by_time]
        else:
            cached = self._between(*_key_bounds(keys))
        return [
            (cache_key, entry)
            for cache_key, entry in cached
            if first <= cache_key[1] <= last
            and (first_key is None or cache_key[0] >= first_key)
            and (last_key is None or cache_key[0] <= last_key)
        ]

    def _store(self, cache_key: Any, value: Any, timestamp: int) -> Any:
        start, encoded = cache_key if self._time_first else cache_key[::-1]
        stored = None if value is None else self._stored(value, timestamp)
        self._put(encoded, start, stored)
        return stored

    def _stored_value(self, cache_key: Any) -> Any:
        start, encoded = cache_key if self._time_first else cache_key[::-1]
        stored = super().get_entry(encoded, start)
        return None if stored is None else self._decode(stored)

    def _emitted_key(self, cache_key: Any, key: K) -> Windowed[K]:
        start = cache_key[0] if self._time_first else cache_key[1]
        return Windowed(key, Window(start, min(start + self.size_ms, MAX_MS)))

    def _key_size(self, cache_key: Any) -> int:
        return _WINDOW_KEY_OVERHEAD + len(cache_key[1] if self._time_first else cache_key[0])

    def _value_size(self, value: Any) -> int:
        return TIMESTAMP_SIZE * self.timestamped + len(self._serde.serialize(value))

    def _stored_size(self, stored: Any) -> int:
        if stored is None:
            return 0
        return TIMESTAMP_SIZE + len(stored[0]) if self.timestamped else len(stored)


class CachedSession(_CachedEntries, SessionEntries[K, V], Generic[K, V]):
    """A `SessionEntries` behind a cache; its cache keys are ``(key, end, start)``."""

    def write(
        self,
        key: K,
        start: int,
        end: int,
        value: V | None,
        timestamp: int = -1,
        headers: Headers = NO_HEADERS,
    ) -> None:
        self.hold((self._keys.encode(key), end, start), key, value, timestamp, headers)

    def discard(
        self, key: K, start: int, end: int, timestamp: int = -1, headers: Headers = NO_HEADERS
    ) -> None:
        self.hold((self._keys.encode(key), end, start), key, None, timestamp, headers)

    def _get(self, encoded: bytes, start: int, end: int) -> Any:
        entry = self._found((encoded, end, start))
        if entry is None:
            return super()._get(encoded, start, end)
        return None if entry.value is None else CachedValue(entry.value, entry.timestamp)

    def entries_of_key(
        self, encoded: bytes, first: int, last: int, *, reverse: bool
    ) -> Iterator[Entry]:
        entries = super().entries_of_key(encoded, first, last, reverse=reverse)
        cached = self._between((encoded, first), (encoded, last + 1))
        return self._merged(entries, cached, _by_entry_key, reverse=reverse)

    def entries_of_keys(
        self, keys: KeyRange, first: int, last: int, *, reverse: bool
    ) -> Iterator[Entry]:
        entries = super().entries_of_keys(keys, first, last, reverse=reverse)
        lowest, highest = _key_bounds(keys)
        cached = [] if lowest and highest and lowest >= highest else self._between(lowest, highest)
        return self._merged(entries, cached, self._entries.by_segment, reverse=reverse)

    def _store(self, cache_key: EntryKey, value: V | None, _timestamp: int) -> Any:
        if value is None:
            self._entries.pop(cache_key[1], cache_key)
            return None
        stored = self._serialize(value)
        self._entries.put(cache_key[1], cache_key, stored)
        return stored

    def _stored_value(self, cache_key: EntryKey) -> V | None:
        stored = self._entries.get(cache_key[1], cache_key)
        return None if stored is None else self._decode(stored)

    def _emitted_key(self, cache_key: EntryKey, key: K) -> Windowed[K]:
        return Windowed(key, Window(cache_key[2], cache_key[1]))

    def _key_size(self, cache_key: EntryKey) -> int:
        return _SESSION_KEY_OVERHEAD + len(cache_key[0])

    def _value_size(self, value: V) -> int:
        return len(self._serialize(value))

    def _stored_size(self, stored: Any) -> int:
        return 0 if stored is None else len(stored)


def _key_bounds(keys: KeyRange) -> tuple[EntryKey | None, EntryKey | None]:
    first_key, last_key = keys
    # The least bytes greater than a key are the key and a zero byte.
    return (
        None if first_key is None else (first_key,),
        None if last_key is None else (last_key + b"\0",),
    )


def _by_entry_key(entry: Entry) -> EntryKey:
    return entry[0]


def _by_start(entry: Entry) -> EntryKey:
    encoded, start = entry[0]
    return (start, encoded)
