"""The partitions of a store that this instance reads, all at one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headrace.brokers.log import TopicPartition
from headrace.queries.catalog import Catalog, QueryableStore
from headrace.queries.copy.layout import GLOBAL_GROUP, Shard
from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.queries.members import MemberStatus
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.store_views import open_store
from headrace.runtime.snapshots import SnapshotRecord

_SOON_MS = 1_000
"""After which time a reader may ask again."""


class LocalInstance(Protocol):
    """The parts of an `Instance` that its own Python program uses."""

    name: str | None
    snapshots: KeptSnapshots

    def newest_record(self) -> SnapshotRecord | None:
        """Return the newest snapshot record that was read."""
        ...

    def problem(self) -> QueryProblemError | None:
        """Return why no shard can answer; None: some may."""
        ...

    def shard_problem(self, shard: Shard, /) -> QueryProblemError | None:
        """Return why a shard cannot answer; None: it can."""
        ...

    def placement(self) -> Mapping[Shard, tuple[str, ...]]:
        """Return the instances to ask for each shard, the best first."""
        ...

    def members(self) -> Mapping[str, MemberStatus]:
        """Return what each known instance said last, this one included."""
        ...

    def lags(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return of each changelog partition the end that readers see, and the newest one."""
        ...


def is_active(instance: LocalInstance, shard: Shard) -> bool:
    """Return whether this instance is the first to ask for a shard. Global ones are its own."""
    if shard.group == GLOBAL_GROUP:
        return True
    return instance.placement().get(shard, ())[:1] == (instance.name or "",)


class LocalPartitions:
    """The partitions of a store that one handle reads.

    Args:
        catalog: The stores of the program.
        instance: The instance.
        store: The store.
        partition: The only partition to read; None: all that are here.
        stale: Whether it reads standbys too, and copies that are behind.
    """

    def __init__(
        self,
        catalog: Catalog,
        instance: LocalInstance,
        store: QueryableStore,
        partition: int | None = None,
        *,
        stale: bool = False,
    ) -> None:
        self.store = store
        self._catalog = catalog
        self._instance = instance
        self._partition = partition
        self._stale = stale

    def open_all(self) -> list[Any]:
        """Return the engine's stores of all partitions that are here, at one snapshot.

        Raises:
            QueryProblemError: A partition cannot answer.
        """
        shown, partitions = self.shown()
        return [open_store(shown, self.store, partition) for partition in partitions]

    def open_for(self, key: Any) -> list[Any]:
        """Return the engine's stores that may have a key: one, or all that are here.

        Raises:
            QueryProblemError: The partition of the key is not here, or cannot answer.
        """
        return [
            open_store(shown, self.store, partition) for shown, partition in self.shown_for(key)
        ]

    def shown(self) -> tuple[ShownSnapshot, list[int]]:
        """Return the newest snapshot that has all partitions that are here, and these.

        Raises:
            QueryProblemError: A partition cannot answer.
        """
        shards = self._shards()
        shown = self._instance.snapshots.newest_with(shards)
        if shown is None:
            raise _not_ready(self.store, lacks="no snapshot with all its partitions")
        return shown, [shard.partition for shard in shards]

    def shown_for(self, key: Any) -> list[tuple[ShownSnapshot, int]]:
        """Return the partitions that may have a key, each with the newest snapshot that has it.

        Raises:
            QueryProblemError: The partition of the key is not here, or cannot answer.
        """
        record = self._record()
        shard = None
        if self._partition is None:
            encoded = self.store.key.serialize(key)
            shard = self._catalog.shard_of_key(self.store, encoded, record)
        if shard is None:
            shown, partitions = self.shown()
            return [(shown, partition) for partition in partitions]
        self._check(shard)
        newest = self._instance.snapshots.newest_of(shard)
        if newest is None:
            raise _not_ready(self.store, lacks=f"no snapshot with partition {shard.partition}")
        return [(newest, shard.partition)]

    def _record(self) -> SnapshotRecord:
        problem = self._instance.problem()
        if problem is not None:
            raise problem
        record = self._instance.newest_record()
        assert record is not None, "without a record there is a problem"
        return record

    def _shards(self) -> list[Shard]:
        """Return the shards to read, after checking that they can answer."""
        shards = self._catalog.shards(self.store, self._record())
        if self._partition is not None:
            if not 0 <= self._partition < len(shards):
                msg = (
                    f"Store {self.store.name!r} has no partition {self._partition}, "
                    f"only {len(shards)} of them, from 0 on."
                )
                raise QueryProblemError(ProblemCode.BAD_REQUEST, msg)
            shards = [shards[self._partition]]
            self._check(shards[0])
        elif self._stale:
            newest_of = self._instance.snapshots.newest_of
            shards = [shard for shard in shards if newest_of(shard) is not None]
        else:
            shards = [shard for shard in shards if is_active(self._instance, shard)]
            for shard in shards:
                self._check(shard)
        if not shards:
            raise _not_ready(self.store, lacks="no partition")
        return shards

    def _check(self, shard: Shard) -> None:
        """Raise the problem of a shard that may not answer here."""
        if self._stale:
            return
        problem = self._instance.shard_problem(shard)
        if problem is not None:
            raise problem
        if not is_active(self._instance, shard):
            msg = (
                f"This instance is a standby for partition {shard.partition} of store "
                f"{self.store.name!r}. Read it with `stale=True`, or ask the instance of "
                "`query_metadata_for_key`."
            )
            raise QueryProblemError(ProblemCode.STORE_NOT_READY, msg)


def _not_ready(store: QueryableStore, *, lacks: str) -> QueryProblemError:
    msg = f"This instance has {lacks} of store {store.name!r} now. Ask again soon."
    return QueryProblemError(ProblemCode.STORE_NOT_READY, msg, retry_after_ms=_SOON_MS)
