"""A database in memory, for tests and models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from sortedcontainers import SortedDict

from headrace.queries.copy.database import SortedEntries, UnsortedError, WriteBatch

_CHUNK = 16


class MemoryView:
    """A state of a `MemoryDatabase`."""

    def __init__(self, entries: SortedDict[bytes, bytes]) -> None:
        self._entries = entries
        self.get = entries.get

    def scan(
        self, start: bytes, end: bytes, /, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        keys = self._entries.irange(start, end, inclusive=(True, False), reverse=reverse)
        return ((key, self._entries[key]) for key in keys)

    def chunks(
        self, start: bytes, end: bytes, /, *, reverse: bool = False
    ) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        entries = self.scan(start, end, reverse=reverse)
        while chunk := [*islice(entries, _CHUNK)]:
            yield [key for key, _ in chunk], [value for _, value in chunk]


class MemoryEntries:
    """Entries that a `MemoryDatabase` takes over later."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes | None] = {}

    def add(self, entries: Sequence[tuple[bytes, bytes]], /) -> None:
        for key, value in entries:
            if self.entries and key <= next(reversed(self.entries)):
                raise UnsortedError(key)
            self.entries[key] = value

    def discard(self) -> None:
        self.entries.clear()


class MemoryDatabase:
    """A sorted dictionary. The first write after a view copies it."""

    def __init__(self) -> None:
        self._entries: SortedDict[bytes, bytes] = SortedDict()
        self._is_shared = False

    def write(self, batch: WriteBatch) -> None:
        if self._is_shared:
            self._entries, self._is_shared = self._entries.copy(), False
        for start, end in batch.deleted_ranges:
            for key in [*self._entries.irange(start, end, inclusive=(True, False))]:
                del self._entries[key]
        for key, value in batch.entries.items():
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = value

    def view(self) -> MemoryView:
        self._is_shared = True
        return MemoryView(self._entries)

    def new_entries(self) -> MemoryEntries:
        return MemoryEntries()

    def take_over(self, entries: SortedEntries) -> None:
        assert isinstance(entries, MemoryEntries), "made by this database"
        self.write(WriteBatch(entries=entries.entries))

    def close(self) -> None:
        """Do nothing: the entries stay, as files would."""
