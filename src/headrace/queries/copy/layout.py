"""The layout of a copy: the shards of an application, and the changelogs of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.brokers.log import TopicPartition
from headrace.runtime.snapshots import SnapshotRecord
from headrace.state.maps import StoreBackend
from headrace.state.store_types.base import ChangelogRecord

GLOBAL_GROUP = "global"
"""The group of the global stores: one task writes them all, so they are one shard."""


class Shard(NamedTuple):
    """The entries of one task that readers see: its partition of all its changelogs."""

    group: str
    """The subtopology, or the global store."""
    partition: int

    def __str__(self) -> str:
        if self.group == GLOBAL_GROUP:
            return "the global stores"
        return f"partition {self.partition} of the stores of subtopology {self.group}"


@dataclass(frozen=True)
class StoreLayout:
    """The arrangement of the copy of one store."""

    changelog: str
    segment: Callable[[bytes, int], int] | None = None
    """Returns the segment of an entry by its changelog key and timestamp; None: no segments."""
    first_segment: Callable[[Mapping[str, Any] | None], int] | None = None
    """Returns the first segment that has not expired, by the store times of a snapshot."""
    entry_key: Callable[[bytes], tuple[Any, ...]] | None = None
    """Returns the entry key of a changelog key, by which entries sort; None: they are the same."""
    apply: Callable[[Iterable[ChangelogRecord], StoreBackend], None] | None = None
    """Changes the entries as records say; None: each record replaces the one with its key."""


@dataclass(frozen=True)
class ShardGroup:
    """The stores of the tasks of one subtopology, or one global store."""

    name: str
    stores: tuple[StoreLayout, ...]
    is_global: bool = False
    """Whether every instance has it."""

    def partition_count(self, record: SnapshotRecord) -> int:
        """Return how many partitions a snapshot has of the stores."""
        return max(len(record.ends.get(each.changelog, ())) for each in self.stores)


@dataclass(frozen=True)
class CopyLayout:
    """The queryable stores of a program."""

    digest: str
    """The digest that the snapshot records of the same program carry."""
    groups: tuple[ShardGroup, ...]

    def stores(self, shard: Shard) -> tuple[StoreLayout, ...]:
        """Return the stores of a shard."""
        return next(group.stores for group in self.groups if group.name == shard.group)

    def changelogs(self) -> list[str]:
        """Return the names of all changelogs."""
        return [store.changelog for group in self.groups for store in group.stores]

    def partitions(self, shard: Shard) -> list[TopicPartition]:
        """Return the changelog partitions of a shard."""
        return [TopicPartition(store.changelog, shard.partition) for store in self.stores(shard)]

    def shards(self, record: SnapshotRecord, *, of_globals: bool) -> Iterator[Shard]:
        """Yield the shards that a snapshot has, either of global stores or of tasks."""
        for group in self.groups:
            if group.is_global is of_globals:
                count = group.partition_count(record)
                yield from (Shard(group.name, partition) for partition in range(count))

    def shard_count(self, record: SnapshotRecord) -> int:
        """Return how many shards a snapshot has."""
        return sum(group.partition_count(record) for group in self.groups)
