"""Stores of rows in lists, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.queries.catalog import QueryableStore
from headrace.queries.reads import (
    FetchSessions,
    FetchWindows,
    GetKey,
    Operation,
    Row,
    RowBatch,
    ScanKeys,
    batches_of,
)
from headrace.serdes.deduce import serde_for
from headrace.serdes.slots import SerdeSlot
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.base import StoreKind


def listed_store(name: str, key: Any, value: Any, kind: StoreKind = "key_value") -> QueryableStore:
    slots = SerdeSlot("key", serde_for(key)), SerdeSlot("value", serde_for(value))
    builder: StoreBuilder[Any] = StoreBuilder(name=name, kind=kind, key=slots[0], value=slots[1])
    return QueryableStore(name, f"{name}-changelog", "0", is_global=False, builder=builder)


def row(
    store: QueryableStore,
    key: Any,
    value: Any,
    *,
    timestamp: int | None = None,
    start: int | None = None,
    end: int | None = None,
) -> Row:
    data = store.key.serialize(key)
    return Row(data, store.value.serialize(value), timestamp, start, end, data)


@dataclass
class ListedRows:
    """Rows by store, at one snapshot; remembers what was read."""

    stores: Mapping[str, list[Row]]
    operations: list[Operation] = field(default_factory=list)
    opened: list[frozenset[str]] = field(default_factory=list)
    closed: int = 0

    def open(self, stores: frozenset[str]) -> ListedRows:
        self.opened.append(stores)
        return self

    def batches(self, store: str, operation: Operation, *, is_ordered: bool) -> Iterator[RowBatch]:
        self.operations.append(operation)
        found = [each for each in self.stores[store] if _is_read(each, operation)]
        if is_ordered:
            is_descending = isinstance(operation, ScanKeys) and operation.descending
            found.sort(key=lambda each: each.key, reverse=is_descending)
        try:
            yield from batches_of(found)
        finally:
            self.closed += 1


def _is_read(row: Row, operation: Operation) -> bool:
    match operation:
        case GetKey(key):
            return row.key == key
        case ScanKeys(start, end):
            return (start is None or row.key >= start) and (end is None or row.key <= end)
        case FetchWindows(key, end_key, time_from, time_to):
            assert row.start is not None
            return _is_of_keys(row, key, end_key) and time_from <= row.start <= time_to
        case FetchSessions(key, end_key, earliest_end, latest_start):
            assert row.start is not None
            assert row.end is not None
            is_in_time = row.end >= earliest_end and row.start <= latest_start
            return _is_of_keys(row, key, end_key) and is_in_time
        case _:
            raise AssertionError(operation)


def _is_of_keys(row: Row, key: bytes | None, end_key: bytes | None) -> bool:
    if key is None:
        return True
    return row.key == key if end_key is None else key <= row.key <= end_key
