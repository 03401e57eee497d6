"""The types of stores whose entries expire: windows and sessions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any

from headrace.state.cached_windows import CachedSession, CachedWindow
from headrace.state.changelog import Changelog, LoggedEntries
from headrace.state.maps import StoreBackend
from headrace.state.segmented_entries import (
    EntryKey,
    ExpiringEntries,
    Expiry,
    RetainedEntries,
)
from headrace.state.session import SessionEntries, session_by_time, session_in_memory_by_time
from headrace.state.store_times import EntryTimes, WindowTimes
from headrace.state.store_types.base import ChangelogRecord, LoggedStoreType, StoreContext
from headrace.state.window import WindowEntries, window_by_time

_START_AND_SEQUENCE = Struct(">qi")
_END_AND_START = Struct(">qq")


class _ExpiringType(LoggedStoreType):
    """Entries in segments of time, with the store's time."""

    times = EntryTimes
    # Retention in Kafka counts event time, also in the active segment: it would delete entries that
    # the store still has. So nothing is deleted by age.
    cleanup_policy = "compact,delete"

    def new_changelog(self, topic: str, now: Callable[[], int]) -> Changelog:
        return Changelog(topic, self.record_key, now, has_timestamps=self.has_timestamps)

    def changelog_times(self) -> dict[str, str]:
        return {"retention.ms": "-1"}

    def apply(self, records: Iterable[ChangelogRecord], backend: StoreBackend) -> None:
        entries = self._retained(backend, EntryTimes())
        for record_key, value, timestamp in records:
            key = self.entry_key(record_key)
            if value is None:
                entries.discard(key[1], key)
            else:
                entries.put(key[1], key, self.stored(value, timestamp))

    def open_for_reading(self, backend: StoreBackend, times: EntryTimes, /) -> Any:
        return self._over(self._retained(backend, times), times)

    @abstractmethod
    def _over(self, entries: ExpiringEntries, times: Any) -> Any:
        """Return the store over entries, without a cache."""

    @abstractmethod
    def _by_time(self) -> Callable[[EntryKey], EntryKey] | None:
        """Return what orders the entries by time; None if nothing reads them so."""

    def _expiry(self, *, keeps_boundary: bool = False) -> Expiry:
        store = self.store
        return Expiry(
            store.retention_ms, persistent=bool(store.persistent), keeps_boundary=keeps_boundary
        )

    def _retained(self, backend: StoreBackend, times: EntryTimes) -> RetainedEntries:
        segments, by_time = backend.segments(self.store), self._by_time()
        return RetainedEntries(segments, times, self._expiry(), _refused, by_time=by_time)

    def _entries(
        self,
        backend: StoreBackend,
        context: StoreContext,
        times: EntryTimes,
        changelog: Changelog | None,
    ) -> ExpiringEntries:
        name, by_time = self.store.name, self._by_time()
        segments = backend.segments(self.store)
        arguments = (segments, times, self._expiry(), lambda: context.drop(name, "expired"))
        if changelog is None:
            return ExpiringEntries(*arguments, by_time=by_time)
        return LoggedEntries(*arguments, by_time=by_time, changelog=changelog)


class WindowType(_ExpiringType):
    """One value per key and window start, or several with their sequence numbers."""

    times = WindowTimes

    def open(
        self,
        backend: StoreBackend,
        context: StoreContext,
        times: WindowTimes,
        changelog: Changelog | None = None,
        /,
    ) -> WindowEntries[Any, Any]:
        store, cache = self.store, context.cache
        entries = self._entries(backend, context, times, changelog)
        # As in Kafka: a cache could only hold one of several values.
        if not store.caching or cache is None or store.retain_duplicates:
            return self._over(entries, times)
        return CachedWindow(*self._arguments(entries, times), cache=cache, **self._options())

    def _over(self, entries: ExpiringEntries, times: WindowTimes) -> WindowEntries[Any, Any]:
        return WindowEntries(*self._arguments(entries, times), **self._options())

    def _arguments(self, entries: ExpiringEntries, times: WindowTimes) -> tuple[Any, ...]:
        store = self.store
        return store.name, store.key.need, store.value.need, entries, times

    def _options(self) -> dict[str, Any]:
        store = self.store
        return {
            "size_ms": store.size_ms,
            "timestamped": self.has_timestamps,
            "retain_duplicates": store.retain_duplicates,
            "time_first": store.time_first,
        }

    def _by_time(self) -> Callable[[EntryKey], EntryKey] | None:
        return window_by_time if self.store.time_first else None

    def _expiry(self, **_options: bool) -> Expiry:
        store = self.store
        return super()._expiry(keeps_boundary=bool(store.persistent) and store.time_first)

    def record_key(self, entry_key: EntryKey) -> bytes:
        sequence = entry_key[2] if len(entry_key) > 2 else 0
        return entry_key[0] + _START_AND_SEQUENCE.pack(entry_key[1], sequence)  # type: ignore[no-any-return]

    def entry_key(self, record_key: bytes) -> EntryKey:
        start, sequence = _START_AND_SEQUENCE.unpack(record_key[-_START_AND_SEQUENCE.size :])
        key = record_key[: -_START_AND_SEQUENCE.size]
        return (key, start, sequence) if self.store.retain_duplicates else (key, start)


class TimestampedWindowType(WindowType):
    """One value and its timestamp per key and window start."""

    has_timestamps = True


class SessionType(_ExpiringType):
    """One value per key and session."""

    def open(
        self,
        backend: StoreBackend,
        context: StoreContext,
        times: EntryTimes,
        changelog: Changelog | None = None,
        /,
    ) -> SessionEntries[Any, Any]:
        store, cache = self.store, context.cache
        entries = self._entries(backend, context, times, changelog)
        if not store.caching or cache is None:
            return self._over(entries, times)
        return CachedSession(store.name, store.key.need, store.value.need, entries, cache=cache)

    def _over(self, entries: ExpiringEntries, _times: EntryTimes) -> SessionEntries[Any, Any]:
        store = self.store
        return SessionEntries(store.name, store.key.need, store.value.need, entries)

    def _by_time(self) -> Callable[[EntryKey], EntryKey] | None:
        if not self.store.time_first:
            return None
        return session_by_time if self.store.persistent else session_in_memory_by_time

    def record_key(self, entry_key: EntryKey) -> bytes:
        key, end, start = entry_key
        return key + _END_AND_START.pack(end, start)  # type: ignore[no-any-return]

    def entry_key(self, record_key: bytes) -> EntryKey:
        end, start = _END_AND_START.unpack(record_key[-_END_AND_START.size :])
        return record_key[: -_END_AND_START.size], end, start


def _refused() -> None:
    """Ignore a write that comes too late; `RetainedEntries` refuse none."""
