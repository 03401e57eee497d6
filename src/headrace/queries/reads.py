"""The reads of the copy of one store, and the rows of an answer. Keys are serialised.

Instances send these to each other as MessagePack, so a coordinator needs no serde to forward a
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from headrace.state.store_types.base import LoggedStoreType


class GetKey(msgspec.Struct, frozen=True, tag="get"):
    """The value of one key, of a key-value or versioned store."""

    key: bytes
    as_of: int | None = None
    """Of a versioned store: the version that was valid at this time; None: the latest."""


class ScanKeys(msgspec.Struct, frozen=True, tag="scan"):
    """The entries of a key-value store, or the latest versions of a versioned one, by key."""

    start: bytes | None = None
    end: bytes | None = None
    """The last key, included, as Kafka's ranges do."""
    prefix: bytes | None = None
    descending: bool = False


class FetchWindows(msgspec.Struct, frozen=True, tag="windows"):
    """The windows of a key, of a range of keys, or of all keys (both None)."""

    key: bytes | None = None
    end_key: bytes | None = None
    """The last key, included; None: the windows of ``key`` alone, or the range has no end."""
    time_from: int = 0
    """The first window start, in milliseconds, included."""
    time_to: int = 2**63 - 1
    """The last window start, included."""
    descending: bool = False
    has_open_end: bool = False
    """Whether all keys from ``key`` on are wanted."""


class FetchSessions(msgspec.Struct, frozen=True, tag="sessions"):
    """The sessions of a key, of a range of keys, or of all keys (both None)."""

    key: bytes | None = None
    end_key: bytes | None = None
    earliest_end: int = 0
    """The sessions end at this time or later."""
    latest_start: int = 2**63 - 1
    """The sessions start at this time or earlier."""
    descending: bool = False
    has_open_end: bool = False
    """Whether all keys from ``key`` on are wanted."""


class FetchVersions(msgspec.Struct, frozen=True, tag="versions"):
    """The versions of a key that were valid between two times, the newest first."""

    key: bytes
    time_from: int = 0
    time_to: int = 2**63 - 1
    ascending: bool = False


Operation: TypeAlias = GetKey | ScanKeys | FetchWindows | FetchSessions | FetchVersions


def key_of(operation: Operation) -> bytes | None:
    """Return the one key that a read is about; None: it is about several."""
    match operation:
        case GetKey(key=key) | FetchVersions(key=key):
            return key
        case (
            FetchWindows(key=key, end_key=None, has_open_end=False)
            | FetchSessions(key=key, end_key=None, has_open_end=False)
        ):
            return key
        case _:
            return None


def whole_read(store_type: LoggedStoreType) -> Operation:
    """Return the read of everything that a store has; of a versioned one the latest."""
    if store_type.has_sessions:
        return FetchSessions()
    return FetchWindows() if store_type.has_windows else ScanKeys()


class Row(NamedTuple):
    """One entry of an answer."""

    key: bytes
    value: bytes
    timestamp: int | None
    """Of stores that keep timestamps; of a version, the time from which it is valid."""
    start: int | None
    """The start of the window or session; the time from which a version is valid."""
    end: int | None
    """The end of the window or session; the time until which a version is valid, None: it still
    is."""
    position: bytes
    """Where the row lies in the order of its shard: a read can resume behind it."""


class RowBatch(Protocol):
    """Some rows of an answer, column by column. A column that nobody asks for is not made."""

    def __len__(self) -> int:
        """Return how many rows there are, at least one."""
        ...

    def keys(self) -> Sequence[bytes]:
        """Return the key of each row."""
        ...

    def values(self) -> Sequence[bytes]:
        """Return the value of each row."""
        ...

    def timestamps(self) -> Iterable[int | None]:
        """Return the timestamp of each row."""
        ...

    def starts(self) -> Iterable[int | None]:
        """Return the start of each row."""
        ...

    def ends(self) -> Iterable[int | None]:
        """Return the end of each row."""
        ...


class ListedRows(list[Row]):
    """A batch of rows that are there one by one."""

    def keys(self) -> list[bytes]:
        """Return the key of each row."""
        return [*map(_KEY, self)]

    def values(self) -> list[bytes]:
        """Return the value of each row."""
        return [*map(_VALUE, self)]

    def timestamps(self) -> Iterator[int | None]:
        """Return the timestamp of each row."""
        return map(_TIMESTAMP, self)

    def starts(self) -> Iterator[int | None]:
        """Return the start of each row."""
        return map(_START, self)

    def ends(self) -> Iterator[int | None]:
        """Return the end of each row."""
        return map(_END, self)


_KEY, _VALUE, _TIMESTAMP, _START, _END = map(itemgetter, range(5))
_FIRST_BATCH, _LARGEST_BATCH = 16, 1024


def batches_of(rows: Iterable[Row]) -> Iterator[ListedRows]:
    """Yield rows in batches, first few and then more, because many reads end early."""
    rows = iter(rows)
    size = _FIRST_BATCH
    while batch := ListedRows(islice(rows, size)):
        yield batch
        size = min(2 * size, _LARGEST_BATCH)
