"""Window stores: one value per key and window start, plain or with a timestamp beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, overload

from headrace.durations import MAX_MS
from headrace.errors import StateStoreError
from headrace.records import NO_HEADERS, Headers, K, Timestamp, V, ValueAndTimestamp, timestamp_ms
from headrace.serdes.base import Serde
from headrace.state.key_value import KeyCodec
from headrace.state.segmented_entries import Entry, EntryKey, ExpiringEntries
from headrace.state.store_times import WindowTimes
from headrace.state.windowed_reads import KeyRange, WindowedReads
from headrace.windows.window import Window, Windowed

_SEQUENCES = 0x7FFFFFFF


class WindowReads(WindowedReads[K, V]):
    """Every fetch of a `WindowStore`. The times of an entry are starts of windows."""

    size_ms: int

    @abstractmethod
    def get_entry(self, encoded: bytes, start: int) -> Any:
        """Return what is stored of a window, or None."""

    @overload
    def fetch(self, key: K, start: Timestamp, /) -> V | None: ...
    @overload
    def fetch(self, key: K, start: Timestamp, end: Timestamp, /) -> Iterator[tuple[int, V]]: ...
    def fetch(
        self, key: K, start: Timestamp, end: Timestamp | None = None, /
    ) -> V | Iterator[tuple[int, V]] | None:
        if end is not None:
            return self._starts(key, start, end, reverse=False)
        stored = self.get_entry(self._keys.encode(key), timestamp_ms(start))
        return None if stored is None else self.shown(stored)

    def backward_fetch(self, key: K, start: Timestamp, end: Timestamp) -> Iterator[tuple[int, V]]:
        return self._starts(key, start, end, reverse=True)

    def fetch_range(
        self, first: K | None, last: K | None, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        return self._range(first, last, start, end, reverse=False)

    def backward_fetch_range(
        self, first: K | None, last: K | None, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        return self._range(first, last, start, end, reverse=True)

    def fetch_all(self, start: Timestamp, end: Timestamp) -> Iterator[tuple[Windowed[K], V]]:
        return self._range(None, None, start, end, reverse=False)

    def backward_fetch_all(
        self, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        return self._range(None, None, start, end, reverse=True)

    def _starts(
        self, key: K, start: Timestamp, end: Timestamp, *, reverse: bool
    ) -> Iterator[tuple[int, V]]:
        first, last = timestamp_ms(start), timestamp_ms(end)
        entries = self.entries_of_key(self._keys.encode(key), first, last, reverse=reverse)
        shown = self.shown
        return ((entry_key[1], shown(stored)) for entry_key, stored in entries)

    def windowed(self, entry_key: EntryKey) -> Windowed[K]:
        start = entry_key[1]
        # The last window there can be is cut where Kafka's time ends.
        window = Window(start, min(start + self.size_ms, MAX_MS))
        return Windowed(self._keys.decode(entry_key[0]), window)


class WindowEntries(WindowReads[K, V]):
    """A `WindowStore`. Operations use `read`, `write` and the scans; users the public methods.

    Scans return what is stored. `value_of` decodes a new copy at each call, so that an aggregator
    may change one copy and keep another.

    ``retain_duplicates`` keeps every value put for a key and start. With ``time_first``, all reads
    of several keys are by time, not by key.
    """

    caching = False

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[Any],
        entries: ExpiringEntries,
        times: WindowTimes,
        *,
        size_ms: int,
        timestamped: bool = False,
        retain_duplicates: bool = False,
        time_first: bool = False,
    ) -> None:
        self.name = name
        self.persistent = entries.persistent
        self.size_ms = size_ms
        self.timestamped = timestamped
        self._keys = KeyCodec(name, key)
        self._entries = entries
        self._times = times
        self._retain_duplicates = retain_duplicates
        self._time_first = time_first
        self._serde = value
        self._stored: Callable[[Any, int], Any]
        self.value_of: Callable[[Any], Any]
        """Decodes the value of what a scan returned."""
        self.timestamp_of: Callable[[Any], int]
        """Returns the timestamp of what a scan returned; -1 if the store keeps none."""
        serialize, deserialize = value.serialize, value.deserialize
        if timestamped:
            self._stored = lambda value, timestamp: (serialize(value), timestamp)
            self.value_of = lambda stored: deserialize(stored[0])
            self.timestamp_of = itemgetter(1)
        else:
            self._stored = lambda value, _timestamp: serialize(value)
            self.value_of = deserialize
            self.timestamp_of = lambda _stored: -1

    def read(self, key: K, start: int) -> tuple[Any, int] | None:
        """Return the value in the window that starts then, and its timestamp; or None."""
        stored = self.get_entry(self._keys.encode(key), start)
        return None if stored is None else (self.value_of(stored), self.timestamp_of(stored))

    def write(
        self, key: K, start: int, value: Any, timestamp: int = -1, _headers: Headers = NO_HEADERS
    ) -> None:
        """Set the value in the window that starts then, and its timestamp; None deletes it.

        The headers are those of the record that made the change; a cache sends them on with it.
        """
        stored = None if value is None else self._stored(value, timestamp)
        self._put(self._keys.encode(key), start, stored)

    def scan_key(
        self, key: K, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[int, Any]]:
        """Yield (start, stored) of the windows of a key that start between two times, included."""
        entries = self.entries_of_key(self._keys.encode(key), first, last, reverse=reverse)
        return ((entry_key[1], stored) for entry_key, stored in entries)

    def scan_times(self, first: int, last: int) -> Iterator[tuple[Windowed[K], Any]]:
        """Yield (windowed key, stored) of the windows that start between two times, included.

        They come by start, then key, if the store is `time_first`.
        """
        windowed = self.windowed
        entries = self.entries_of_keys((None, None), first, last, reverse=False)
        return ((windowed(entry_key), stored) for entry_key, stored in entries)

    def put(self, key: K, value: Any, window_start: Timestamp) -> None:
        start = timestamp_ms(window_start)
        if start < 0:
            msg = f"Store {self.name!r} was given the window start {start}. Use zero or more."
            raise StateStoreError(msg, is_of_record=True)
        if not self.timestamped:
            self.write(key, start, value)
        elif value is None or value[0] is None:
            self.write(key, start, None)
        else:
            self.write(key, start, value[0], value[1])

    def plain_values(self) -> WindowReads[K, Any]:
        """Return this store without the timestamps: what `get_window_store` shows in a test."""
        return PlainWindowValues(self) if self.timestamped else self

    def shown(self, stored: Any) -> V:
        value: Any = self.value_of(stored)
        return ValueAndTimestamp(value, self.timestamp_of(stored)) if self.timestamped else value  # type: ignore[return-value]  # V is one or the other

    def _put(self, encoded: bytes, start: int, stored: Any) -> None:
        if self._retain_duplicates:
            self._add(encoded, start, stored)
        elif stored is None:
            self._entries.pop(start, (encoded, start))
        else:
            self._entries.put(start, (encoded, start), stored)

    def _add(self, encoded: bytes, start: int, stored: Any) -> None:
        """Add a value; None deletes nothing."""
        if stored is not None:
            sequence = self._times.sequence = (self._times.sequence + 1) & _SEQUENCES
            self._entries.put(start, (encoded, start, sequence), stored)
        elif not self.persistent:
            # Kafka's store in memory advances its time all the same.
            self._entries.pop(start, (encoded, start, 0))

    def get_entry(self, encoded: bytes, start: int) -> Any:
        if self._retain_duplicates:
            # As in Kafka, one value of several can only be found if it was the last one put.
            sequence = self._times.sequence if self.persistent else 0
            return self._entries.get(start, (encoded, start, sequence))
        return self._entries.get(start, (encoded, start))

    def entries_of_keys(
        self, keys: KeyRange, first: int, last: int, *, reverse: bool
    ) -> Iterator[Entry]:
        if self._time_first and keys == (None, None):
            return self._entries.of_times(first, last, reverse=reverse)
        entries = super().entries_of_keys(keys, first, last, reverse=reverse)
        if self.persistent and not self._time_first:
            return entries
        return iter(sorted(entries, key=lambda entry: _time_then_key(entry[0]), reverse=reverse))

    @property
    def order(self) -> Callable[[EntryKey], EntryKey] | None:
        # Kafka's store in memory is ordered by time.
        return None if self.persistent and not self._time_first else _time_then_key


def _time_then_key(entry_key: EntryKey) -> EntryKey:
    key, start, *sequence = entry_key
    return (start, key, *sequence)


def window_by_time(key: EntryKey) -> EntryKey:
    """Return the key that sorts an entry of a window store by time, then key."""
    return (key[1], key[0])


class PlainWindowValues(WindowReads[K, V]):
    """A timestamped window store as one of plain values."""

    def __init__(self, store: WindowEntries[K, Any]) -> None:
        self.name = store.name
        self.persistent = store.persistent
        self.size_ms = store.size_ms
        self._keys = store._keys  # noqa: SLF001  # a view of the same store
        self._store = store

    def put(self, key: K, value: V | None, window_start: Timestamp) -> None:
        pair = None if value is None else ValueAndTimestamp(value, -1)
        self._store.put(key, pair, window_start)

    def get_entry(self, encoded: bytes, start: int) -> Any:
        return self._store.get_entry(encoded, start)

    def entries_of_key(
        self, encoded: bytes, first: int, last: int, *, reverse: bool
    ) -> Iterator[Entry]:
        return self._store.entries_of_key(encoded, first, last, reverse=reverse)

    def entries_of_keys(
        self, keys: KeyRange, first: int, last: int, *, reverse: bool
    ) -> Iterator[Entry]:
        return self._store.entries_of_keys(keys, first, last, reverse=reverse)

    def shown(self, stored: Any) -> V:
        value: V = self._store.value_of(stored)
        return value
