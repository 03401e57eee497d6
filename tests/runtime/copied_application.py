"""An application on the embedded log, and copies of its stores, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace import Materialized, StreamsBuilder, StreamsConfig, Topology
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.queries.catalog import catalog_of
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.database import Database
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.copy.reader import CopyReader
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.reads import Operation, Row, ScanKeys
from headrace.queries.store_views import read_rows
from headrace.runtime.checkpoint.batch_log import MemoryBatchLog
from headrace.runtime.snapshots import SnapshotRecord, newest_record, read_snapshots
from headrace.topology.naming import leader_name, snapshots_name
from tests.runtime.in_process import InProcessQuery

APPLICATION, INPUT = "application", "lines"
COUNTS = "counts"


def counting(source: str = INPUT) -> Topology:
    """Return a program that counts lines by key."""
    builder = StreamsBuilder()
    lines = builder.stream(source, key=str, value=str).group_by_key()
    lines.count(materialized=Materialized(COUNTS))
    return builder.build()


class CopiedApplication:
    """An application whose batches a test runs one by one.

    Args:
        folder: Keeps its log and state.
        topology: The program; by default it counts lines by key.
        history: The id of its query.
        name: Its name.
        source: The topic that it reads.
        settings: Its settings.
    """

    def __init__(
        self,
        folder: Path,
        topology: Topology | None = None,
        history: str = "11111111",
        *,
        name: str = APPLICATION,
        source: str = INPUT,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.name, self.source = name, source
        self.topology = topology or counting(source)
        self._settings: dict[str, Any] = {"application_id": name, **settings}
        config = StreamsConfig(**self._settings).with_settings(state_dir=folder)
        self.log = open_log(config)
        if source not in self.log.list_topics():
            self.log.create_topic(source, partitions=2)
        self.batch_log = MemoryBatchLog(history)
        self.query = self._new_query(0)
        self.catalog = catalog_of(self.query.plan)

    def _new_query(self, leader_epoch: int) -> InProcessQuery:
        return InProcessQuery(
            self.topology,
            self.folder,
            batch_log=self.batch_log,
            leader_epoch=leader_epoch,
            **self._settings,
        )

    def feed(self, *keys: str, value: bytes | None = b"v", timestamp: int = 1) -> None:
        """Write lines with these keys to both partitions."""
        self.log.append(
            [
                (self.source, each, timestamp, key.encode(), value, None)
                for key in keys
                for each in (0, 1)
            ]
        )

    def run(self, *keys: str, **fields: Any) -> SnapshotRecord:
        """Run the batch of some lines; return its record."""
        self.feed(*keys, **fields)
        self.query.run()
        return self.newest()

    def lose_record(self, *keys: str) -> None:
        """Run a batch, and die before its record is written."""
        assert self.query.planner.snapshots is not None
        self.query.planner.snapshots.step = lambda: None  # type: ignore[method-assign]
        self.feed(*keys)
        self.query.batch()

    def newest(self) -> SnapshotRecord:
        """Return the newest snapshot record."""
        record = newest_record(read_snapshots(self.log, snapshots_name(self.name)))
        assert record is not None
        return record

    def take_over(self, leader_epoch: int) -> None:
        """Continue with another leader, from the same checkpoint."""
        before = self.query
        group = leader_name(self.name)
        self.log.commit_offsets(group, {TopicPartition(group, 0): OffsetAndMetadata(leader_epoch)})
        self.query = self._new_query(leader_epoch)
        self.query._blobs = before._blobs
        self.query.position, self.query.batches = before.position, before.batches

    def close(self) -> None:
        """Close its log."""
        self.query.log.close()
        self.log.close()


class Copy:
    """A copy of all shards of an application.

    Args:
        application: The application.
        database: Where it is kept.
        now: The time in milliseconds.
        limits: The limits of its applier.
    """

    def __init__(
        self,
        application: CopiedApplication,
        database: Database | None = None,
        now: int = 0,
        limits: ApplierLimits | None = None,
    ) -> None:
        self._application = application
        self.catalog = application.catalog
        self.log = open_log(application.query.config)
        self.reader = CopyReader(
            self.log,
            self.catalog.layout,
            self.catalog.snapshots_topic,
            database or MemoryDatabase(),
            now,
            limits or ApplierLimits(marker_offsets=0),
        )
        self.applier = self.reader.applier
        self.now = now

    def step(self, now: int | None = None, count: int = 5) -> None:
        """Read and apply what there is."""
        self.now = self.now if now is None else now
        for _ in range(count):
            self.reader.step(self.now)
            record = self.applier.newest
            if record is not None and not self.applier.kept:
                self.applier.keep(self.shards(record))

    def shards(self, record: SnapshotRecord) -> list[Shard]:
        """Return all shards of a snapshot."""
        return [
            shard
            for store in self.catalog.stores.values()
            for shard in self.catalog.shards(store, record)
        ]

    @property
    def shown(self) -> list[int]:
        """Return the numbers of the snapshots that it shows."""
        return [each.record.snapshot for each in self.reader.copy.snapshots]

    def newest(self, shard: Shard) -> ShownSnapshot:
        """Return the newest snapshot that it shows of a shard."""
        shown = self.reader.copy.snapshots.newest_of(shard)
        assert shown is not None
        return shown

    def rows(
        self, store: str = COUNTS, partition: int = 0, operation: Operation | None = None
    ) -> Sequence[Row]:
        """Return the rows of a store at its newest snapshot."""
        found = self.catalog.store(store)
        shown = self.newest(Shard(found.group, partition))
        return [*read_rows(shown, found, partition, operation or ScanKeys())]

    def counts(self, partition: int = 0) -> dict[str, int]:
        """Return the counts by key at the newest snapshot."""
        return {row.key.decode(): int.from_bytes(row.value) for row in self.rows(COUNTS, partition)}

    def close(self) -> None:
        """Close its log and its database."""
        self.reader.copy.snapshots.clear()
        self.reader.close()
        self.log.close()
