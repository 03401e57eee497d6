"""Ordered maps of plain data: what a runtime brings, and what every store is made of.

Keys are bytes or tuples of bytes and integers, so they sort as Kafka's composite byte keys do
without being glued together. Values are bytes or tuples of bytes and integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from sortedcontainers import SortedList

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


class MemoryMap(Generic[KT, VT]):
    """An `OrderedMap` in memory: a dict, and its sorted keys from the first scan on."""

    __slots__ = ("_data", "_keys", "get")

    def __init__(self) -> None:
        self._data: dict[KT, VT] = {}
        self._keys: SortedList[KT] | None = None
        self.get = self._data.get

    def put(self, key: KT, value: VT, /) -> None:
        if self._keys is not None and key not in self._data:
            self._keys.add(key)
        self._data[key] = value

    def pop(self, key: KT, /) -> VT | None:
        value = self._data.pop(key, None)
        if value is not None and self._keys is not None:
            self._keys.remove(key)
        return value

    def scan(
        self, start: KT | None = None, end: KT | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[KT, VT]]:
        found = self._ordered().irange(start, end, inclusive=(True, False), reverse=reverse)
        data = self._data
        return iter([(key, data[key]) for key in found])

    def first(self, start: KT, end: KT, /) -> tuple[KT, VT] | None:
        for key in self._ordered().irange(start, end, inclusive=(True, False)):
            return key, self._data[key]
        return None

    def last(self, start: KT, end: KT, /) -> tuple[KT, VT] | None:
        for key in self._ordered().irange(start, end, inclusive=(True, False), reverse=True):
            return key, self._data[key]
        return None

    def _ordered(self) -> SortedList[KT]:
        if self._keys is None:
            self._keys = SortedList(self._data)
        return self._keys

    def __len__(self) -> int:
        return len(self._data)


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
