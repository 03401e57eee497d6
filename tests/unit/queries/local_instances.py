"""An instance without threads: snapshots that a test applies, of stores with several partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace import FixedKeyProcessor, StreamsBuilder, StreamsConfig, Topology
from headrace.brokers.log import TopicPartition
from headrace.queries.catalog import catalog_of
from headrace.queries.copy.actions import (
    Change,
    Changes,
    CopyState,
    ShardState,
    ShardWrite,
    Show,
    Write,
)
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.local_copy import LocalCopy
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.local.instance_queries import InstanceQueries
from headrace.queries.members import MemberStatus
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.runtime.plan import plan_topology
from headrace.runtime.snapshots import SnapshotRecord
from headrace.state.store_types.base import ChangelogRecord
from tests.unit.queries.snapshot_records import make_record

Updates = Mapping[str, Mapping[int, Sequence[ChangelogRecord]]]
"""Changelog records by store and partition."""


class FakeInstance:
    """The instance ``a:1`` of an application, with copies that a test fills."""

    def __init__(self, topology: Topology, partitions: int = 2) -> None:
        config = StreamsConfig(application_id="app")
        self.catalog = catalog_of(plan_topology(topology, config))
        self.queries = InstanceQueries(self.catalog, self)
        self.name: str | None = "a:1"
        self._copy = LocalCopy(self.catalog.layout, MemoryDatabase())
        self.snapshots = self._copy.snapshots
        self.record: SnapshotRecord | None = None
        self.problems: dict[Shard, QueryProblemError] = {}
        self.others: dict[Shard, tuple[str, ...]] = {}
        """The shards that other instances have too, with the order in which to ask."""
        self._partitions = partitions

    def shard(self, store: str, partition: int = 0) -> Shard:
        return Shard(self.catalog.store(store).group, partition)

    def apply(
        self,
        changes: Updates,
        *,
        times: Mapping[str, dict[str, int]] | None = None,
        position: dict[str, list[int]] | None = None,
        without: Sequence[Shard] = (),
    ) -> None:
        """Show the next snapshot, of all shards but some."""
        number = 0 if self.record is None else self.record.snapshot + 1
        counts = {
            store.changelog: 1 if store.is_global else self._partitions
            for store in self.catalog.stores.values()
        }
        store_times = {
            self.catalog.store(name).changelog: [saved] * self._partitions
            for name, saved in (times or {}).items()
        }
        self.record = make_record(
            number,
            ends={changelog: [10 * number + 10] * count for changelog, count in counts.items()},
            store_times=store_times,
            position=position or {},
        )
        shards = [
            shard
            for of_globals in (False, True)
            for shard in self.catalog.layout.shards(self.record, of_globals=of_globals)
            if shard not in without
        ]
        parts = [
            ShardWrite(shard, ShardState(number, {}, 0), self._changes(shard, changes))
            for shard in shards
        ]
        self._copy.carry_out(Write(parts, CopyState("layout", {}, self.record)), 0)
        self._copy.carry_out(Show(self.record, dict.fromkeys(shards, number - 1)), 0)

    def _changes(self, shard: Shard, changes: Updates) -> dict[TopicPartition, Changes]:
        return {
            TopicPartition(self.catalog.store(name).changelog, shard.partition): Changes.of(
                Change(0, timestamp, key, value)
                for key, value, timestamp in partitions.get(shard.partition, ())
            )
            for name, partitions in changes.items()
            if self.catalog.store(name).group == shard.group
        }

    def newest_record(self) -> SnapshotRecord | None:
        return self.record

    def problem(self) -> QueryProblemError | None:
        if self.record is not None:
            return None
        return QueryProblemError(ProblemCode.STORE_NOT_READY, "no snapshot yet")

    def shard_problem(self, shard: Shard, /) -> QueryProblemError | None:
        return self.problems.get(shard)

    def placement(self) -> dict[Shard, tuple[str, ...]]:
        assert self.record is not None
        own = {
            shard: (self.name or "",)
            for of_globals in (False, True)
            for shard in self.catalog.layout.shards(self.record, of_globals=of_globals)
        }
        return {**own, **self.others}

    def members(self) -> dict[str, MemberStatus]:
        names = {self.name or "", *(name for names in self.others.values() for name in names)}
        return {name: MemberStatus(name=name) for name in names}

    def lags(self) -> dict[TopicPartition, tuple[int, int]]:
        assert self.record is not None
        return {
            TopicPartition(topic, partition): (end - 3, end)
            for topic, ends in self.record.ends.items()
            for partition, end in enumerate(ends)
        }


class _Nothing(FixedKeyProcessor[str, str, str]):
    """Does nothing with its stores."""

    def process(self, record: Any) -> None:
        """Do nothing."""


def topology_of(*builders: Any) -> Topology:
    """Return a program with stores that nothing fills."""
    builder = StreamsBuilder()
    for store in builders:
        builder.add_state_store(store)
    lines = builder.stream("in", key=str, value=str)
    lines.process_values(_Nothing, stores=[store.name for store in builders])
    return builder.build()
