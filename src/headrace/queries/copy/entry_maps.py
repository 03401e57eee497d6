"""The entries of a copy as the stores of the engine read them: ordered maps over a database view.

A versioned store is also written through them, because a version may end another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from sortedcontainers import SortedDict

from headrace.queries.copy.database import DatabaseView, prefix_end
from headrace.queries.copy.keys import (
    LATEST_SEGMENT,
    entry_bytes,
    entry_from_bytes,
    from_sorted_key,
    segment_number,
    segment_prefix,
    sorted_key,
)
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.lookup import logged_type_of


class Coding(NamedTuple):
    """The conversion of the keys and contents of a map into bytes and back."""

    key_bytes: Callable[[Any], bytes]
    key: Callable[[bytes], Any]
    stored: Callable[[bytes], Any]
    """Returns what is stored, of the bytes of an entry."""


def _same(key: bytes) -> bytes:
    return key


def _plain(data: bytes) -> bytes | None:
    return entry_from_bytes(data).value


def _with_timestamp(data: bytes) -> tuple[bytes | None, int]:
    timestamp, value = entry_from_bytes(data)
    return value, timestamp


def _ended(data: bytes) -> tuple[Any, ...]:
    until, value = entry_from_bytes(data)
    return (until,) if value is None else (until, value)


LATEST = Coding(_same, _same, _with_timestamp)
"""The latest versions of a versioned store: (value, since) by key."""
HISTORY = Coding(sorted_key, from_sorted_key, _ended)
"""The other versions: (until, value), or (until) of a deletion, by (key, since)."""


def coding_of(store: StoreBuilder[Any]) -> Coding:
    """Return how the entries of a store are coded in which each record replaces another."""
    store_type = logged_type_of(store)
    stored = _with_timestamp if store_type.has_timestamps else _plain
    if store_type.has_segments:
        return Coding(sorted_key, from_sorted_key, stored)
    return Coding(_same, _same, stored)


class _CodedEntries:
    """Entries of a view.

    Args:
        view: The state of the database.
        prefix: The beginning of the database keys.
        coding: How keys and contents are coded.
        after: Scans leave out the entries up to this database key in their direction.
    """

    def __init__(
        self, view: DatabaseView, prefix: bytes, coding: Coding, after: bytes | None = None
    ) -> None:
        self._view = view
        self._prefix = prefix
        self._coding = coding
        self._after = after


class ViewMap(_CodedEntries):
    """An `OrderedMap` of the entries under a prefix that nobody can change."""

    def get(self, key: Any, /) -> Any:
        data = self._view.get(self._prefix + self._coding.key_bytes(key))
        return None if data is None else self._coding.stored(data)

    def scan(
        self, start: Any = None, end: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        low, high = self._bounds(start, end)
        if self._after is not None:
            low, high = (
                (low, min(high, self._after)) if reverse else (max(low, self._after + b"\0"), high)
            )
        if low >= high:
            return
        size = len(self._prefix)
        _, decoded, stored = self._coding
        for key, data in self._entries(low, high, reverse=reverse):
            yield decoded(key[size:]), stored(data)

    def first(self, start: Any, end: Any, /) -> tuple[Any, Any] | None:
        return next(self.scan(start, end), None)

    def last(self, start: Any, end: Any, /) -> tuple[Any, Any] | None:
        return next(self.scan(start, end, reverse=True), None)

    def put(self, _key: Any, _stored: Any, /) -> None:
        _refuse()

    def pop(self, _key: Any, /) -> Any:
        _refuse()

    def __len__(self) -> int:
        return sum(1 for _ in self._entries(*self._bounds(None, None)))

    def _bounds(self, start: Any, end: Any) -> tuple[bytes, bytes]:
        prefix, key_bytes = self._prefix, self._coding.key_bytes
        return (
            prefix if start is None else prefix + key_bytes(start),
            prefix_end(prefix) if end is None else prefix + key_bytes(end),
        )

    def _entries(
        self, low: bytes, high: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._view.scan(low, high, reverse=reverse)


class ViewSegments(_CodedEntries):
    """A `SegmentedMap` of the entries under a prefix that nobody can change."""

    _numbers: list[int] | None = None

    def existing(self, number: int, /) -> ViewMap:
        prefix = segment_prefix(self._prefix, number)
        return ViewMap(self._view, prefix, self._coding, self._after)

    def numbers(self) -> list[int]:
        if self._numbers is None:
            self._numbers = self._found()
        return self._numbers

    def _found(self) -> list[int]:
        """Look for the first entry of each segment; there are few."""
        numbers: list[int] = []
        start, end = self._prefix, segment_prefix(self._prefix, LATEST_SEGMENT)
        while (found := next(iter(self._view.scan(start, end)), None)) is not None:
            numbers.append(segment_number(found[0][len(self._prefix) :]))
            start = segment_prefix(self._prefix, numbers[-1] + 1)
        return numbers

    def segment(self, _number: int, /) -> NoReturn:
        _refuse()

    def drop_before(self, _number: int, /) -> None:
        _refuse()


class ViewStores:
    """A `StoreBackend` of one changelog partition in a view, for readers.

    Args:
        view: The state of the database.
        prefix: The prefix of the entries of the changelog partition.
        after: Scans leave out the entries up to this database key in their direction.
    """

    def __init__(self, view: DatabaseView, prefix: bytes, after: bytes | None = None) -> None:
        self._view = view
        self._prefix = prefix
        self._after = after

    def map(self, store: StoreBuilder[Any], /) -> ViewMap:
        if logged_type_of(store).replaces:
            return ViewMap(self._view, self._prefix, coding_of(store), self._after)
        prefix = segment_prefix(self._prefix, LATEST_SEGMENT)
        return ViewMap(self._view, prefix, LATEST, self._after)

    def segments(self, store: StoreBuilder[Any], /) -> ViewSegments:
        coding = coding_of(store) if logged_type_of(store).replaces else HISTORY
        return ViewSegments(self._view, self._prefix, coding, self._after)


class _ChangedMap(ViewMap):
    """A map with changes that the database does not have yet."""

    def __init__(
        self,
        view: DatabaseView,
        prefix: bytes,
        coding: Coding,
        changes: SortedDict[bytes, bytes | None],
        data: Callable[[Any], bytes],
    ) -> None:
        super().__init__(view, prefix, coding)
        self._changes = changes
        self._data = data

    def get(self, key: Any, /) -> Any:
        database_key = self._prefix + self._coding.key_bytes(key)
        if database_key not in self._changes:
            return super().get(key)
        data = self._changes[database_key]
        return None if data is None else self._coding.stored(data)

    def put(self, key: Any, stored: Any, /) -> None:
        self._changes[self._prefix + self._coding.key_bytes(key)] = self._data(stored)

    def pop(self, key: Any, /) -> Any:
        found = self.get(key)
        self._changes[self._prefix + self._coding.key_bytes(key)] = None
        return found

    def _entries(
        self, low: bytes, high: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        # The versions of one key: few.
        entries: dict[bytes, bytes | None] = dict(super()._entries(low, high))
        for key in self._changes.irange(low, high, inclusive=(True, False)):
            entries[key] = self._changes[key]
        for key in sorted(entries, reverse=reverse):
            data = entries[key]
            if data is not None:
                yield key, data


class _ChangedSegments(ViewSegments):
    def __init__(
        self, view: DatabaseView, prefix: bytes, changes: SortedDict[bytes, bytes | None]
    ) -> None:
        super().__init__(view, prefix, HISTORY)
        self._changes = changes

    def existing(self, number: int, /) -> _ChangedMap:
        prefix = segment_prefix(self._prefix, number)
        return _ChangedMap(self._view, prefix, HISTORY, self._changes, _history_bytes)

    def segment(self, number: int, /) -> _ChangedMap:  # type: ignore[override]  # can be written
        if number not in self.numbers():
            self._numbers = sorted([*self.numbers(), number])
        return self.existing(number)


class ChangedVersions:
    """A `StoreBackend` of a versioned store that collects changes instead of making them.

    ``prefix`` begins the keys of the entries of the changelog partition.
    """

    def __init__(self, view: DatabaseView, prefix: bytes) -> None:
        self.changes: SortedDict[bytes, bytes | None] = SortedDict()
        """The new contents of each database key; None deletes it."""
        latest = segment_prefix(prefix, LATEST_SEGMENT)
        self._latest = _ChangedMap(view, latest, LATEST, self.changes, _latest_bytes)
        self._history = _ChangedSegments(view, prefix, self.changes)

    def map(self, _store: StoreBuilder[Any], /) -> _ChangedMap:
        return self._latest

    def segments(self, _store: StoreBuilder[Any], /) -> _ChangedSegments:
        return self._history


def _latest_bytes(stored: tuple[bytes, int]) -> bytes:
    return entry_bytes(stored[1], stored[0])


def _history_bytes(stored: tuple[Any, ...]) -> bytes:
    return entry_bytes(stored[0], stored[1] if len(stored) > 1 else None)


def _refuse() -> NoReturn:
    msg = "a snapshot does not change"
    raise AssertionError(msg)
