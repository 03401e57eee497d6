"""Ordered maps that forget: the entries used least recently, or those put too long ago.

Each keeps two orders in one map, ``(0, key)`` and ``(1, when, key)``, so that it finds the next
entry to forget without a search, and saves the order with the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias

from headrace.state.maps import OrderedMap
from headrace.state.store_times import LruTimes

Stored: TypeAlias = Any
"""The entry that a key-value store keeps per key: bytes, or a tuple of bytes and integers."""

_ENTRIES, _ORDER, _END = 0, 1, 2
_MARK = b""


class _Bounded:
    """An `OrderedMap` of bytes over a map of both orders; subclasses forget entries."""

    def __init__(self, data: OrderedMap[tuple[Any, ...], Any]) -> None:
        self.forgotten: Callable[[bytes], object] = _nothing
        """Called with each key that is forgotten."""
        self._data = data

    def _find(self, key: bytes) -> tuple[int, Stored] | None:
        """Return the rank of an entry in the order, and what is stored."""
        found = self._data.get((_ENTRIES, key))
        return None if found is None else (found[0], _unpacked(found))

    def _put(self, key: bytes, stored: Stored, order: int) -> None:
        packed = (order, *stored) if isinstance(stored, tuple) else (order, stored)
        self._data.put((_ENTRIES, key), packed)
        self._data.put((_ORDER, order, key), _MARK)

    def pop(self, key: bytes, /) -> Stored | None:
        found = self._find(key)
        if found is None:
            return None
        self._data.pop((_ENTRIES, key))
        self._data.pop((_ORDER, found[0], key))
        return found[1]

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Stored]]:
        low = (_ENTRIES,) if start is None else (_ENTRIES, start)
        high = (_ORDER,) if end is None else (_ENTRIES, end)
        found = self._data.scan(low, high, reverse=reverse)
        return ((key[1], _unpacked(packed)) for key, packed in found)

    def first(self, start: bytes, end: bytes, /) -> tuple[bytes, Stored] | None:
        return next(self.scan(start, end), None)

    def last(self, start: bytes, end: bytes, /) -> tuple[bytes, Stored] | None:
        return next(self.scan(start, end, reverse=True), None)

    def __len__(self) -> int:
        return len(self._data) // 2


class LeastRecentlyUsed(_Bounded):
    """An `OrderedMap` that keeps the ``capacity`` keys read or written last."""

    def __init__(
        self, data: OrderedMap[tuple[Any, ...], Any], times: LruTimes, capacity: int
    ) -> None:
        super().__init__(data)
        self._times = times
        self._capacity = capacity

    def get(self, key: bytes, /) -> Stored | None:
        stored = self.pop(key)
        if stored is not None:
            self._insert(key, stored)
        return stored

    def put(self, key: bytes, stored: Stored, /) -> None:
        self.pop(key)
        self._insert(key, stored)
        if len(self) > self._capacity:
            eldest = self._data.first((_ORDER,), (_END,))
            assert eldest is not None, "there are more entries than the capacity"
            self.pop(eldest[0][2])
            self.forgotten(eldest[0][2])

    def _insert(self, key: bytes, stored: Stored) -> None:
        self._times.uses += 1
        self._put(key, stored, self._times.uses)


class TtlMap(_Bounded):
    """An `OrderedMap` whose entries are gone ``ttl_ms`` of stream time after they were last put.

    The next put or scan removes expired entries. ``now`` returns the stream time.
    """

    def __init__(
        self, data: OrderedMap[tuple[Any, ...], Any], ttl_ms: int, now: Callable[[], int]
    ) -> None:
        super().__init__(data)
        self._ttl_ms = ttl_ms
        self._now = now
        self._removed_until = -(2**63)

    def get(self, key: bytes, /) -> Stored | None:
        found = self._find(key)
        return None if found is None or found[0] <= self._now() - self._ttl_ms else found[1]

    def put(self, key: bytes, stored: Stored, /) -> None:
        self.remove_expired()
        self.pop(key)
        self._put(key, stored, self._now())

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Stored]]:
        self.remove_expired()
        return super().scan(start, end, reverse=reverse)

    def __len__(self) -> int:
        self.remove_expired()
        return super().__len__()

    def remove_expired(self) -> None:
        """Remove the entries that have expired."""
        until = self._now() - self._ttl_ms
        if until > self._removed_until:
            self._removed_until = until
            for (_, _, key), _ in self._data.scan((_ORDER,), (_ORDER, until + 1)):
                self.pop(key)
                self.forgotten(key)


def prefetch_both_orders(keys: list[bytes]) -> Generator[tuple[None, list[Any]], list[Any], None]:
    """Yield where a map of both orders has these keys: see `headrace.state.store_types.base`."""
    found = yield None, [(_ENTRIES, key) for key in keys]
    entries = zip(keys, found, strict=True)
    yield None, sorted((_ORDER, entry[0], key) for key, entry in entries if entry is not None)


def _nothing(_key: bytes) -> None:
    """Do nothing about a key."""


def _unpacked(packed: tuple[Any, ...]) -> Stored:
    return packed[1] if len(packed) == 2 else packed[1:]
