"""Which shards a read needs, and what it asks each of them for."""

from __future__ import annotations

import msgspec

from headrace.queries.catalog import QueryableStore
from headrace.queries.coordination.asking import Wanted
from headrace.queries.coordination.cursors import Cursor
from headrace.queries.coordination.local_reads import ShardRead
from headrace.queries.coordination.queried_instance import QueriedInstance
from headrace.queries.copy.layout import Shard
from headrace.queries.reads import (
    FetchSessions,
    FetchVersions,
    FetchWindows,
    GetKey,
    Operation,
    ScanKeys,
)
from headrace.runtime.snapshots import SnapshotRecord


class ReadPlan:
    """The reads of the shards of one operation.

    Args:
        instance: The instance of this process.
        store: The store.
        operation: The read.
        limit: How many rows the first request asks each shard for.
        behind: Where the read resumes.
    """

    def __init__(
        self,
        instance: QueriedInstance,
        store: QueryableStore,
        operation: Operation,
        limit: int,
        behind: Cursor | None = None,
    ) -> None:
        self.operation = operation
        self._catalog = instance.catalog
        self._store = store
        self._limit = limit
        self._behind = behind

    def __call__(self, record: SnapshotRecord) -> list[Wanted]:
        """Return the reads of the shards that a snapshot has."""
        return [
            Wanted(shard, read)
            for shard in self._shards(record)
            for read in self._reads(shard.partition)
        ]

    def _shards(self, record: SnapshotRecord) -> list[Shard]:
        key = key_of(self.operation)
        shard = None if key is None else self._catalog.shard_of_key(self._store, key, record)
        return self._catalog.shards(self._store, record) if shard is None else [shard]

    def _reads(self, partition: int) -> list[ShardRead]:
        read = ShardRead(self._store.name, partition, self.operation, None, self._limit)
        behind = self._behind
        if behind is None:
            return [read]
        resumed = msgspec.structs.replace(read, after=behind.position)
        if not isinstance(self.operation, ScanKeys):
            if partition < behind.partition:
                return []
            return [resumed if partition == behind.partition else read]
        if self._store.has_key_partitions or partition == behind.partition:
            return [resumed]
        is_later = (partition < behind.partition) is self.operation.descending
        # Another shard may have the same key, and its row comes behind the last one.
        same_key = msgspec.structs.replace(read, operation=GetKey(behind.position))
        return [same_key, resumed] if is_later else [resumed]


def key_of(operation: Operation) -> bytes | None:
    """Return the one key that a read is about; None: it is about several."""
    match operation:
        case GetKey(key=key) | FetchVersions(key=key):
            return key
        case FetchWindows(key=key, end_key=None) | FetchSessions(key=key, end_key=None):
            return key
        case _:
            return None
