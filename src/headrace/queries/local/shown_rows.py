"""The rows of a whole store, of a snapshot that this instance has."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import chain
from operator import itemgetter

from headrace.queries.catalog import Catalog, QueryableStore
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.reads import Operation, Row, RowBatch, ScanKeys, batches_of, key_of
from headrace.queries.store_views import read_batches, read_rows


def needed_shards(
    shown: ShownSnapshot, catalog: Catalog, store: QueryableStore, operation: Operation
) -> list[Shard]:
    """Return the shards that a read needs: that of its key, or all."""
    key = key_of(operation)
    shard = None if key is None else catalog.shard_of_key(store, key, shown.record)
    return catalog.shards(store, shown.record) if shard is None else [shard]


def shown_rows(
    shown: ShownSnapshot,
    catalog: Catalog,
    store: QueryableStore,
    operation: Operation,
    *,
    is_ordered: bool,
) -> Iterator[Row]:
    """Return the rows of a read of all partitions.

    A scan is in the order of its keys if it ``is_ordered``; else partition by partition.

    Raises:
        QueryProblemError: The snapshot does not have all shards, or the store is of another kind.
    """
    parts = [
        read_rows(shown, store, shard.partition, operation)
        for shard in needed_shards(shown, catalog, store, operation)
    ]
    if is_ordered and isinstance(operation, ScanKeys) and len(parts) > 1:
        return merge(*parts, key=itemgetter(0), reverse=operation.descending)
    return chain.from_iterable(parts)


def shown_batches(
    shown: ShownSnapshot,
    catalog: Catalog,
    store: QueryableStore,
    operation: Operation,
    *,
    is_ordered: bool,
) -> Iterator[RowBatch]:
    """Return the rows of `shown_rows` in batches.

    Raises:
        QueryProblemError: The snapshot does not have all shards, or the store is of another kind.
    """
    shards = needed_shards(shown, catalog, store, operation)
    if is_ordered and len(shards) > 1:
        return batches_of(shown_rows(shown, catalog, store, operation, is_ordered=True))
    parts = [read_batches(shown, store, shard.partition, operation) for shard in shards]
    return chain.from_iterable(parts)
