"""Scans of the keys of a store over a view, in batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any

from headrace.queries.catalog import QueryableStore
from headrace.queries.copy.database import DatabaseView
from headrace.queries.copy.keys import (
    HEADER_SIZE,
    LATEST_SEGMENT,
    segment_prefix,
    unpack_header,
)
from headrace.queries.reads import Row, ScanKeys
from headrace.state.key_value import end_of_prefix

_row: Callable[[tuple[Any, ...]], Row] = partial(tuple.__new__, Row)
"""Returns the row of its fields; the class itself takes three times as long."""
_value_of = itemgetter(slice(HEADER_SIZE, None))
_first = itemgetter(0)


class ScannedRows:
    """A batch of rows that a scan has found."""

    def __init__(
        self, store: QueryableStore, prefix_size: int, keys: Sequence[bytes], data: Sequence[bytes]
    ) -> None:
        self._store = store
        self._key_of = itemgetter(slice(prefix_size, None))
        self._keys = keys
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def keys(self) -> list[bytes]:
        """Return the key of each row."""
        return [*map(self._key_of, self._keys)]

    def values(self) -> list[bytes]:
        """Return the value of each row."""
        return [*map(_value_of, self._data)]

    def timestamps(self) -> Iterable[int | None]:
        """Return the timestamp of each row."""
        return self._times() if self._store.has_timestamps else self.ends()

    def starts(self) -> Iterable[int | None]:
        """Return from when each row is valid, if it is a version."""
        return self._times() if self._store.type.is_versioned else self.ends()

    def ends(self) -> Iterable[None]:
        """Return until when each row is valid: it is a latest version, or none."""
        return repeat(None, len(self._data))

    def rows(self) -> Iterator[Row]:
        """Return the rows themselves."""
        keys = self.keys()
        columns = (keys, self.values(), self.timestamps(), self.starts(), self.ends(), keys)
        return map(_row, zip(*columns, strict=True))

    def _times(self) -> Iterator[int]:
        return map(_first, map(unpack_header, self._data))


def scan_batches(
    view: DatabaseView,
    store: QueryableStore,
    prefix: bytes,
    operation: ScanKeys,
    after: bytes | None = None,
) -> Iterator[ScannedRows]:
    """Return the rows of one partition in batches: a query may scan millions of them.

    Args:
        view: The state of the database.
        store: The store.
        prefix: The prefix of the entries of the partition.
        operation: Which keys, and in which order.
        after: The position of the row behind which to resume.
    """
    if store.type.is_versioned:
        prefix = segment_prefix(prefix, LATEST_SEGMENT)
    first, behind = _bounds(prefix, operation, after)
    if first >= behind:
        return iter(())
    chunks = view.chunks(first, behind, reverse=operation.descending)
    return (ScannedRows(store, len(prefix), *chunk) for chunk in chunks)


def _bounds(prefix: bytes, operation: ScanKeys, after: bytes | None) -> tuple[bytes, bytes]:
    """Return the first database key of a scan, and the first one behind it."""
    start, end = operation.start, operation.end
    # The least bytes greater than a key are the key and a zero byte.
    low, high = start or b"", None if end is None else end + b"\0"
    if operation.prefix is not None:
        low = max(low, operation.prefix)
        stop = end_of_prefix(operation.prefix)
        high = high if stop is None else stop if high is None else min(high, stop)
    if after is not None and operation.descending:
        high = after if high is None else min(high, after)
    elif after is not None:
        low = max(low, after + b"\0")
    behind = end_of_prefix(prefix) if high is None else prefix + high
    assert behind is not None, "a prefix has other bytes than the highest"
    return prefix + low, behind
