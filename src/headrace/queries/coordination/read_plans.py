"""Plans the shards that a read needs, and the request to each of them."""

from __future__ import annotations

import msgspec

from headrace.queries.catalog import QueryableStore
from headrace.queries.coordination.asking import Wanted
from headrace.queries.coordination.cursors import Cursor
from headrace.queries.coordination.local_reads import ShardRead
from headrace.queries.coordination.queried_instance import QueriedInstance
from headrace.queries.copy.layout import Shard
from headrace.queries.reads import GetKey, Operation, ScanKeys, key_of
from headrace.runtime.snapshots import SnapshotRecord

_SPARE_ROWS = 32
"""How many rows a shard is asked for beyond its share, so that few are asked twice."""


class ReadPlan:
    """The reads of the shards of one operation.

    Args:
        instance: The instance of this process.
        store: The store.
        operation: The read.
        limit: How many rows the reader wants.
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
        shards = self._shards(record)
        # Hashed keys lie evenly in all shards; a shard that has more is asked again.
        share = self._limit * 6 // 5 // max(len(shards), 1) + _SPARE_ROWS
        limit = min(self._limit, share)
        return [Wanted(shard, read) for shard in shards for read in self._reads(shard, limit)]

    def _shards(self, record: SnapshotRecord) -> list[Shard]:
        key = key_of(self.operation)
        shard = None if key is None else self._catalog.shard_of_key(self._store, key, record)
        return self._catalog.shards(self._store, record) if shard is None else [shard]

    def _reads(self, shard: Shard, limit: int) -> list[ShardRead]:
        partition = shard.partition
        read = ShardRead(self._store.name, partition, self.operation, None, limit)
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
