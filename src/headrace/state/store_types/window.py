"""Describes window and session stores: how they open, and what their changelogs look like."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, ClassVar

from headrace.state.cached_windows import CachedSession, CachedWindow
from headrace.state.changelog import Changelog, LoggedEntries
from headrace.state.maps import StoreBackend
from headrace.state.segmented_entries import EntryKey, ExpiringEntries, Expiry, RetainedEntries
from headrace.state.session import SessionEntries, session_by_time, session_in_memory_by_time
from headrace.state.store_times import EntryTimes, WindowTimes
from headrace.state.store_types.base import ChangelogRecord, LoggedStoreType, Opening, StoreKind
from headrace.state.window import WindowEntries, window_by_time

_START_AND_SEQUENCE = Struct(">qi")
_END_AND_START = Struct(">qq")


class _ExpiringType(LoggedStoreType):
    """A store that keeps its entries in segments of time, and saves the latest time it has seen."""

    times = EntryTimes
    cleanup_policy = "compact,delete"
    has_windows = True
    has_segments = True
    may_keep_boundary = False
    """Whether readers see an entry exactly as old as the retention, if it is ordered by time."""

    def changelog_times(self) -> dict[str, str]:
        # Kafka compares record timestamps with the clock, even in the active log segment. It would
        # delete old records whose entries the store still has.
        return {"retention.ms": "-1"}

    def new_changelog(self, topic: str, now: Callable[[], int]) -> Changelog:
        return Changelog(topic, self.record_key, now, has_timestamps=self.has_timestamps)

    def segment(self, entry_key: EntryKey, /) -> int:
        time: int = entry_key[1]
        return time // self._expiry().segment_ms

    def first_segment(self, saved: Mapping[str, int], /) -> int:
        return self._expiry().first_segment(EntryTimes.from_saved(saved).time)

    def apply(self, records: Iterable[ChangelogRecord], backend: StoreBackend) -> None:
        # These times are thrown away: `open_for_reading` gets the saved ones.
        entries = self._retained(backend, EntryTimes())
        for record_key, value, timestamp in records:
            key = self.entry_key(record_key)
            time = key[1]  # the window's start, or the session's end
            if value is None:
                entries.discard(time, key)
            else:
                entries.put(time, key, self.stored(value, timestamp))

    def open_for_reading(self, backend: StoreBackend, times: EntryTimes, /) -> Any:
        return self._over(self._retained(backend, times), times)

    @abstractmethod
    def _over(self, entries: ExpiringEntries, times: Any, /, **cache: Any) -> Any:
        """Return the store that users see; it reads and writes ``entries``."""

    @abstractmethod
    def _by_time(self) -> Callable[[EntryKey], EntryKey]:
        """Return the function that turns an entry key into a key sorted by time."""

    def _options(self) -> dict[str, Any]:
        return {"by_time": self._by_time() if self.store.time_first else None}

    def _expiry(self) -> Expiry:
        keeps_boundary = self.may_keep_boundary and self.persistent and self.store.time_first
        return Expiry(self.store.retention_ms, self.persistent, keeps_boundary)

    def _retained(self, backend: StoreBackend, times: EntryTimes) -> RetainedEntries:
        """Return entries that are neither dropped nor refused."""
        segments = backend.segments(self.store)
        return RetainedEntries(segments, times, self._expiry(), **self._options())

    def open(self, opening: Opening) -> Any:
        backend, context, times, changelog = opening
        name, segments = self.store.name, backend.segments(self.store)
        expiring = segments, times, self._expiry(), lambda: context.drop(name, "expired")
        if changelog is None:
            entries = ExpiringEntries(*expiring, **self._options())
        else:
            entries = LoggedEntries(*expiring, **self._options(), changelog=changelog)
        # A store that retains duplicates has no cache, as in Kafka: a cache holds one value.
        if not self.store.caching or context.cache is None or self.store.retain_duplicates:
            return self._over(entries, times)
        return self._over(entries, times, cache=context.cache)


class WindowType(_ExpiringType):
    """One value per key and window start; with ``retain_duplicates`` several, each numbered."""

    kind: ClassVar[StoreKind] = "window"
    times = WindowTimes
    may_keep_boundary = True

    def _over(self, entries: ExpiringEntries, times: WindowTimes, /, **cache: Any) -> Any:
        store_class: Any = CachedWindow if cache else WindowEntries
        return store_class(
            *self.arguments,
            entries,
            times,
            size_ms=self.store.size_ms,
            timestamped=self.has_timestamps,
            retain_duplicates=self.store.retain_duplicates,
            time_first=self.store.time_first,
            **cache,
        )

    def _by_time(self) -> Callable[[EntryKey], EntryKey]:
        return window_by_time

    def record_key(self, entry_key: EntryKey) -> bytes:
        sequence = entry_key[2] if len(entry_key) > 2 else 0
        return entry_key[0] + _START_AND_SEQUENCE.pack(entry_key[1], sequence)  # type: ignore[no-any-return]

    def entry_key(self, record_key: bytes) -> EntryKey:
        start, sequence = _START_AND_SEQUENCE.unpack(record_key[-_START_AND_SEQUENCE.size :])
        key = record_key[: -_START_AND_SEQUENCE.size]
        return (key, start, sequence) if self.store.retain_duplicates else (key, start)


class TimestampedWindowType(WindowType):
    """One value and its timestamp per key and window start."""

    kind = "timestamped_window"
    has_timestamps = True


class SessionType(_ExpiringType):
    """One value per key and session."""

    kind = "session"
    has_sessions = True

    def _over(self, entries: ExpiringEntries, _times: EntryTimes, /, **cache: Any) -> Any:
        store_class: Any = CachedSession if cache else SessionEntries
        return store_class(*self.arguments, entries, **cache)

    def _by_time(self) -> Callable[[EntryKey], EntryKey]:
        return session_by_time if self.persistent else session_in_memory_by_time

    def record_key(self, entry_key: EntryKey) -> bytes:
        key, end, start = entry_key
        return key + _END_AND_START.pack(end, start)  # type: ignore[no-any-return]

    def entry_key(self, record_key: bytes) -> EntryKey:
        end, start = _END_AND_START.unpack(record_key[-_END_AND_START.size :])
        return record_key[: -_END_AND_START.size], end, start
