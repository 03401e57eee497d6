"""Reads of entries that all stores of windows and sessions share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeAlias

from headrace.durations import MAX_MS
from headrace.records import K, Timestamp, V, timestamp_ms
from headrace.state.key_value import KeyCodec
from headrace.state.segmented_entries import Entry, EntryKey, ExpiringEntries
from headrace.windows.window import Windowed

KeyRange: TypeAlias = tuple[bytes | None, bytes | None]
"""The first and the last key of a scan; None leaves that end open."""


class WindowedReads(ABC, Generic[K, V]):
    """The reads of windows and sessions, over two methods that each store brings."""

    name: str
    persistent: bool
    _keys: KeyCodec[K]
    _entries: ExpiringEntries

    def entries_of_key(
        self, encoded: bytes, first: int, last: int, *, reverse: bool
    ) -> Iterator[Entry]:
        """Return the entries of one key between two times, both included, by time."""
        return self._entries.of_key(encoded, first, last, reverse=reverse)

    def entries_of_keys(
        self, keys: KeyRange, first: int, last: int, *, reverse: bool
    ) -> Iterator[Entry]:
        """Return the entries of several keys between two times, both included."""
        return self._entries.of_keys(*keys, first, last, reverse=reverse)

    @property
    def order(self) -> Callable[[EntryKey], EntryKey] | None:
        """Returns the order of an entry among several keys; None: by segment, key and time."""
        return None

    def stored_at(self, entry_key: EntryKey) -> Any:
        """Return what is stored under an entry key, or None."""
        return self._entries.get(entry_key[1], entry_key)

    @abstractmethod
    def windowed(self, entry_key: EntryKey) -> Windowed[K]:
        """Return the key and window of an entry."""

    @abstractmethod
    def shown(self, stored: Any) -> V:
        """Return what users see of what is stored."""

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        return self._range(None, None, 0, MAX_MS, reverse=False)

    def backward_all(self) -> Iterator[tuple[Windowed[K], V]]:
        return self._range(None, None, 0, MAX_MS, reverse=True)

    def encoded_key(self, key: K) -> bytes:
        """Return the bytes of a key, which decide its partition."""
        return self._keys.encode(key)

    def _range(
        self, first: K | None, last: K | None, start: Timestamp, end: Timestamp, *, reverse: bool
    ) -> Iterator[tuple[Windowed[K], V]]:
        encode = self._keys.encode
        keys = None if first is None else encode(first), None if last is None else encode(last)
        times = timestamp_ms(start), timestamp_ms(end)
        entries = self.entries_of_keys(keys, *times, reverse=reverse)
        return self._shown_entries(entries, reverse=reverse)

    def _shown_entries(
        self, entries: Iterable[Entry], *, reverse: bool
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return entries as users see them; a store with another order sorts them."""
        shown, windowed = self.shown, self.windowed
        return ((windowed(entry_key), shown(stored)) for entry_key, stored in entries)
