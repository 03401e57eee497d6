"""Ordered maps of plain data: what a runtime brings, and what every store is made of.

Keys are bytes or tuples of bytes and integers, so they sort as Kafka's composite byte keys do
without being glued together. Values are bytes or tuples of bytes and integers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sortedcontainers import SortedList

if TYPE_CHECKING:
    from headrace.state.specs import StoreBuilder

KT = TypeVar("KT", bound=Any)
VT = TypeVar("VT")


class OrderedMap(Protocol[KT, VT]):
    """A map that can be read in key order."""

    def get(self, key: KT, /) -> VT | None:
        """Return the value of ``key``, or None."""
        ...

    def put(self, key: KT, value: VT, /) -> None:
        """Set the value of ``key``."""
        ...

    def pop(self, key: KT, /) -> VT | None:
        """Remove ``key``; return the value it had, or None."""
        ...

    def scan(
        self, start: KT | None = None, end: KT | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[KT, VT]]:
        """Yield entries with ``start <= key < end`` as they were when the scan began."""
        ...

    def first(self, start: KT, end: KT, /) -> tuple[KT, VT] | None:
        """Return the first entry that `scan` would yield, or None."""
        ...

    def last(self, start: KT, end: KT, /) -> tuple[KT, VT] | None:
        """Return the last entry that `scan` would yield, or None."""
        ...

    def __len__(self) -> int: ...


class SegmentedMap(Protocol[KT, VT]):
    """Ordered maps numbered by time, so that what expired is dropped a whole segment at a time."""

    def segment(self, number: int, /) -> OrderedMap[KT, VT]:
        """Return the map of a segment, made if it is not there."""
        ...

    def existing(self, number: int, /) -> OrderedMap[KT, VT] | None:
        """Return the map of a segment, or None if nothing was put there."""
        ...

    def numbers(self) -> list[int]:
        """Return the numbers of the segments there are, ascending."""
        ...

    def drop_before(self, number: int, /) -> None:
        """Forget the segments with a smaller number."""
        ...


class StoreBackend(Protocol):
    """Holds the entries of the stores of one task; each runtime brings its own."""

    def map(self, store: StoreBuilder[Any], /) -> OrderedMap[Any, Any]:
        """Return the map of a store without segments."""
        ...

    def segments(self, store: StoreBuilder[Any], /) -> SegmentedMap[Any, Any]:
        """Return the map of a store whose entries expire."""
        ...


class MemoryMap(Generic[KT, VT]):
    """An `OrderedMap` in memory: a dict, and its sorted keys from the first scan on.

    Scans within one encoded key, such as the windows of a key, have an order of their own: the keys
    that begin with it, in a list. It costs a fraction of the order of all keys.
    """

    __slots__ = ("_data", "_keys", "_keys_by_prefix", "get")

    def __init__(self) -> None:
        self._data: dict[KT, VT] = {}
        self._keys: SortedList[KT] | None = None
        self._keys_by_prefix: dict[bytes, list[KT]] | None = None
        self.get = self._data.get

    def put(self, key: KT, value: VT, /) -> None:
        data = self._data
        if key not in data:
            if self._keys is not None:
                self._keys.add(key)
            if self._keys_by_prefix is not None:
                _add(self._keys_by_prefix, key)
        data[key] = value

    def pop(self, key: KT, /) -> VT | None:
        value = self._data.pop(key, None)
        if value is not None:
            if self._keys is not None:
                self._keys.remove(key)
            if self._keys_by_prefix is not None:
                _remove(self._keys_by_prefix, key)
        return value

    def scan(
        self, start: KT | None = None, end: KT | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[KT, VT]]:
        data = self._data
        if start is not None and end is not None:
            group = self._group(start, end)
            if group is not None:
                keys = keys_between(group, start, end, reverse=reverse)
                return iter([(key, data[key]) for key in keys])
        found = self._ordered().irange(start, end, inclusive=(True, False), reverse=reverse)
        return iter([(key, data[key]) for key in found])

    def first(self, start: KT, end: KT, /) -> tuple[KT, VT] | None:
        group = self._group(start, end)
        if group is None:
            for key in self._ordered().irange(start, end, inclusive=(True, False)):
                return key, self._data[key]
            return None
        position = bisect_left(group, start)
        if position < len(group) and group[position] < end:
            return group[position], self._data[group[position]]
        return None

    def last(self, start: KT, end: KT, /) -> tuple[KT, VT] | None:
        group = self._group(start, end)
        if group is None:
            for key in self._ordered().irange(start, end, inclusive=(True, False), reverse=True):
                return key, self._data[key]
            return None
        position = bisect_left(group, end) - 1
        if position >= 0 and group[position] >= start:
            return group[position], self._data[group[position]]
        return None

    def _ordered(self) -> SortedList[KT]:
        if self._keys is None:
            self._keys = SortedList(self._data)
        return self._keys

    def _group(self, start: KT, end: KT) -> list[KT] | None:
        """Return the keys that begin with the same bytes as both bounds; None if those differ."""
        if type(start) is not tuple or type(end) is not tuple:
            return None
        begin = start[0]
        if type(begin) is not bytes or begin != end[0]:
            return None
        if self._keys_by_prefix is None:
            self._keys_by_prefix = {}
            for key in sorted(self._data):
                _add(self._keys_by_prefix, key)
        return self._keys_by_prefix.get(begin, [])

    def __len__(self) -> int:
        return len(self._data)


def keys_between(group: list[KT], start: KT, end: KT, *, reverse: bool) -> list[KT]:
    """Return the keys of a sorted group from ``start`` to before ``end``."""
    keys = group[bisect_left(group, start) : bisect_left(group, end)]
    if reverse:
        keys.reverse()
    return keys


def _add(groups: dict[bytes, list[KT]], key: KT) -> None:
    group = groups.get(key[0])
    if group is None:
        groups[key[0]] = [key]
    elif key > group[-1]:
        group.append(key)
    else:
        insort(group, key)


def _remove(groups: dict[bytes, list[KT]], key: KT) -> None:
    group = groups[key[0]]
    if len(group) == 1:
        del groups[key[0]]
    else:
        del group[bisect_left(group, key)]


class MemorySegments(Generic[KT, VT]):
    """A `SegmentedMap` in memory."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: dict[int, MemoryMap[KT, VT]] = {}

    def segment(self, number: int, /) -> MemoryMap[KT, VT]:
        found = self._segments.get(number)
        if found is None:
            found = self._segments[number] = MemoryMap()
        return found

    def existing(self, number: int, /) -> MemoryMap[KT, VT] | None:
        return self._segments.get(number)

    def numbers(self) -> list[int]:
        return sorted(self._segments)

    def drop_before(self, number: int, /) -> None:
        for old in [each for each in self._segments if each < number]:
            del self._segments[old]


class MemoryStores:
    """A `StoreBackend` in memory; it outlives the task that fills it."""

    def __init__(self) -> None:
        self._maps: dict[str, MemoryMap[Any, Any]] = {}
        self._segments: dict[str, MemorySegments[Any, Any]] = {}

    def map(self, store: StoreBuilder[Any], /) -> MemoryMap[Any, Any]:
        return self._maps.setdefault(store.name, MemoryMap())

    def segments(self, store: StoreBuilder[Any], /) -> MemorySegments[Any, Any]:
        return self._segments.setdefault(store.name, MemorySegments())
