"""The interface of an instance's database: ordered bytes, atomic batches, and views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class WriteBatch:
    """Changes that a database makes together or not at all: first the ranges, then the entries."""

    deleted_ranges: list[tuple[bytes, bytes]] = field(default_factory=list)
    """First key and end of each range that is deleted."""
    entries: dict[bytes, bytes | None] = field(default_factory=dict)
    """The new value of each key; None deletes it."""


class DatabaseView(Protocol):
    """A state of the database. It stays readable, and the same, while writes continue.

    The database frees a view when nothing refers to it any more.
    """

    def get(self, key: bytes, /) -> bytes | None:
        """Return the value of a key; None: there is none."""

    def scan(
        self, start: bytes, end: bytes, /, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with ``start <= key < end`` in the order of their keys."""
        ...

    def chunks(
        self, start: bytes, end: bytes, /, *, reverse: bool = False
    ) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        """Yield the same entries some at a time, first few and then more: keys and values."""
        ...


class SortedEntries(Protocol):
    """Entries outside of a database that it can take over together. Any thread may fill it."""

    def add(self, entries: Sequence[tuple[bytes, bytes]], /) -> None:
        """Add entries behind all that are there.

        Raises:
            UnsortedError: A key does not lie behind the one before.
        """

    def discard(self) -> None:
        """Forget the entries."""


class UnsortedError(ValueError):
    """The keys of entries do not rise."""


class Database(Protocol):
    """The files of an instance, or their stand-in in memory."""

    def write(self, batch: WriteBatch, /) -> None:
        """Make the changes of a batch together."""

    def view(self) -> DatabaseView:
        """Return the present state."""
        ...

    def new_entries(self) -> SortedEntries:
        """Return a place for entries that the database takes over later."""
        ...

    def take_over(self, entries: SortedEntries, /) -> None:
        """Put all entries of a place of `new_entries`, together; the place is gone then."""

    def close(self) -> None:
        """Close the files; views cannot be read after this."""


def prefix_end(prefix: bytes) -> bytes:
    """Return the first key behind all keys with a prefix, which has a byte other than 255."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])
