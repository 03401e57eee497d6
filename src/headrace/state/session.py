"""Session stores: one value per key and session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.durations import MAX_MS
from headrace.records import NO_HEADERS, Headers, K, Timestamp, V, timestamp_ms
from headrace.serdes.base import Serde
from headrace.state.key_value import KeyCodec
from headrace.state.segmented_entries import Entry, EntryKey, ExpiringEntries
from headrace.state.windowed_reads import WindowedReads
from headrace.windows.window import Window, Windowed


class SessionEntries(WindowedReads[K, V]):
    """A `SessionStore`. Operations use `find`, `write` and `discard`; users the public methods.

    `find` and `scan_ends` return what is stored. `value_of` decodes a new copy at each call.
    """

    caching = False

    def __init__(self, name: str, key: Serde[K], value: Serde[V], entries: ExpiringEntries) -> None:
        self.name = name
        self.persistent = entries.persistent
        self.value_of = value.deserialize
        self._keys = KeyCodec(name, key)
        self._serialize_key = key.serialize
        self._serde = value
        self._serialize = value.serialize
        self._entries = entries

    def find(self, key: K, earliest_end: int, latest_start: int) -> list[tuple[int, int, Any]]:
        """Return (start, end, stored) of the sessions of a key that touch a stretch of time."""
        entries = self.entries_of_key(self._serialize_key(key), earliest_end, MAX_MS, reverse=False)
        return [
            (start, end, stored) for (_, end, start), stored in entries if start <= latest_start
        ]

    def read_session(self, key: K, start: int, end: int) -> V | None:
        """Return the value of exactly that session, or None."""
        stored = self._get(self._keys.encode(key), start, end)
        return None if stored is None else self.value_of(stored)

    def write(
        self,
        key: K,
        start: int,
        end: int,
        value: V | None,
        _timestamp: int = -1,
        _headers: Headers = NO_HEADERS,
    ) -> None:
        """Set the value of a session; None deletes it.

        Timestamp and headers are those of the record that made the change, for a cache.
        """
        entry_key = (self._keys.encode(key), end, start)
        if value is None:
            self._entries.pop(end, entry_key)
        else:
            self._entries.put(end, entry_key, self._serialize(value))

    def discard(
        self, key: K, start: int, end: int, _timestamp: int = -1, _headers: Headers = NO_HEADERS
    ) -> None:
        """Remove a session."""
        if self.persistent:
            # Kafka's store in memory does not advance its time here.
            self._entries.advance(end)
        self._entries.discard(end, (self._keys.encode(key), end, start))

    def scan_ends(self, first: int, last: int) -> Iterator[tuple[Windowed[K], Any]]:
        """Yield (windowed key, stored) of the sessions that end between two times, by end.

        Only stores that are kept by time can. As in Kafka, a persistent one also finds sessions
        past the retention, as long as their segment is there.
        """
        entries = self._entries.of_times(first, last, expired=self.persistent)
        return ((self.windowed(entry_key), stored) for entry_key, stored in entries)

    def put(self, session: Windowed[K], value: V | None) -> None:
        self.write(session.key, session.window.start, session.window.end, value)

    def remove(self, session: Windowed[K]) -> None:
        self.discard(session.key, session.window.start, session.window.end)

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        return self._sessions(key, 0, MAX_MS, reverse=False)

    def backward_fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        return self._sessions(key, 0, MAX_MS, reverse=True)

    def fetch_range(self, first: K | None, last: K | None) -> Iterator[tuple[Windowed[K], V]]:
        return self._range(first, last, 0, MAX_MS, reverse=False)

    def backward_fetch_range(
        self, first: K | None, last: K | None
    ) -> Iterator[tuple[Windowed[K], V]]:
        return self._range(first, last, 0, MAX_MS, reverse=True)

    def find_sessions(
        self, key: K, earliest_end: Timestamp, latest_start: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        return self._sessions(key, earliest_end, latest_start, reverse=False)

    def backward_find_sessions(
        self, key: K, earliest_end: Timestamp, latest_start: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        return self._sessions(key, earliest_end, latest_start, reverse=True)

    def fetch_session(self, key: K, start: Timestamp, end: Timestamp) -> V | None:
        return self.read_session(key, timestamp_ms(start), timestamp_ms(end))

    def _sessions(
        self, key: K, earliest_end: Timestamp, latest_start: Timestamp, *, reverse: bool
    ) -> Iterator[tuple[Windowed[K], V]]:
        first, latest = timestamp_ms(earliest_end), timestamp_ms(latest_start)
        entries = self.entries_of_key(self._keys.encode(key), first, MAX_MS, reverse=reverse)
        found = [entry for entry in entries if entry[0][2] <= latest]
        return self._shown_entries(found, reverse=reverse)

    def _shown_entries(
        self, entries: Iterable[Entry], *, reverse: bool
    ) -> Iterator[tuple[Windowed[K], V]]:
        if not self.persistent:
            order = session_in_memory_by_time
            entries = sorted(entries, key=lambda entry: order(entry[0]), reverse=reverse)
        return super()._shown_entries(entries, reverse=reverse)

    @property
    def order(self) -> Callable[[EntryKey], EntryKey] | None:
        return None if self.persistent else session_in_memory_by_time

    @property
    def shown(self) -> Callable[[Any], V]:  # saves a call per entry
        return self.value_of

    def windowed(self, entry_key: EntryKey) -> Windowed[K]:
        encoded, end, start = entry_key
        return Windowed(self._keys.decode(encoded), Window(start, end))

    def _get(self, encoded: bytes, start: int, end: int) -> Any:
        return self._entries.get(end, (encoded, end, start))


def session_by_time(key: EntryKey) -> EntryKey:
    """Return the key that sorts a persistent session by end, then start, then key."""
    encoded, end, start = key
    return (end, start, encoded)


def session_in_memory_by_time(key: EntryKey) -> EntryKey:
    """Return the key that sorts a session in memory, as Kafka's: by end, key, latest start."""
    encoded, end, start = key
    return (end, encoded, -start)
