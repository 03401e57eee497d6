"""The queries of `KafkaStreams` on this instance: stores, IQ v2, metadata and lags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.errors import StreamsError
from headrace.queries.catalog import Catalog, QueryableStore
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.local.answers import answer, can_answer
from headrace.queries.local.local_partitions import LocalInstance, LocalPartitions, is_active
from headrace.queries.local.metadata import (
    HostInfo,
    KeyQueryMetadata,
    StreamsMetadata,
    metadata_of,
)
from headrace.queries.local.positions import Position, PositionBound
from headrace.queries.local.state_queries import (
    FailureReason,
    QueryResult,
    StateQueryRequest,
    StateQueryResult,
)
from headrace.queries.local.store_types import QueryableStoreType, plain_type_of
from headrace.queries.store_views import open_store
from headrace.state.store_types.lookup import kind_in_words

R = TypeVar("R")

KeyPartitioner = Callable[[str, Any, None, int], int | None]
"""Returns the partition of a key, of a store's name, the key, None and how many there are."""


class InstanceQueries:
    """Queries of the copies that one instance keeps."""

    def __init__(self, catalog: Catalog, instance: LocalInstance) -> None:
        self._catalog = catalog
        self._instance = instance

    def store(
        self,
        name: str,
        store_type: QueryableStoreType[Any] | None = None,
        *,
        partition: int | None = None,
        stale: bool = False,
    ) -> Any:
        """Return a store of what this instance holds; each read is of the newest snapshot.

        Raises:
            QueryProblemError: There is no such store, or it is of another kind.
        """
        store = self._catalog.store(name)
        partitions = LocalPartitions(self._catalog, self._instance, store, partition, stale=stale)
        return (store_type or plain_type_of(store)).open(partitions)

    def query(self, request: StateQueryRequest[R]) -> StateQueryResult[R]:
        """Return the answers of the partitions of a store that this instance holds.

        All are of the newest snapshot that has them.

        Raises:
            QueryProblemError: There is no such store, or no snapshot yet.
        """
        store = self._catalog.store(request.store)
        problem = self._instance.problem()
        if problem is not None:
            raise problem
        record = self._instance.newest_record()
        assert record is not None, "without a record there is a problem"
        shards = self._catalog.shards(store, record)
        asked = [*range(len(shards))] if request.partitions is None else [*request.partitions]
        here = {shard.partition: shard for shard in shards if self._is_here(shard)}
        together = [here[number] for number in asked if number in here]
        shown = self._instance.snapshots.newest_with(together)
        results = {}
        for number in sorted(asked):
            if number in here:
                results[number] = self._answer(request, store, here[number], shown)
            elif number >= len(shards) or number < 0:
                message = f"Store {store.name!r} has {len(shards)} partitions, from 0 on."
                results[number] = _failure(FailureReason.DOES_NOT_EXIST, message)
            elif request.partitions is not None or request.require_active:
                message = f"This instance does not have partition {number} of {store.name!r} now."
                results[number] = _failure(FailureReason.NOT_PRESENT, message)
        if store.is_global:
            return StateQueryResult({}, results.get(0))
        return StateQueryResult(results)

    def _is_here(self, shard: Shard) -> bool:
        return self._instance.snapshots.newest_of(shard) is not None

    def _answer(
        self,
        request: StateQueryRequest[Any],
        store: QueryableStore,
        shard: Shard,
        together: ShownSnapshot | None,
    ) -> QueryResult[Any]:
        if not can_answer(request.query, store.type):
            name = type(request.query).__name__
            message = f"A {kind_in_words(store.builder)} store answers no `{name}`."
            return _failure(FailureReason.UNKNOWN_QUERY_TYPE, message)
        if request.require_active and not is_active(self._instance, shard):
            message = f"This instance is a standby for partition {shard.partition}."
            return _failure(FailureReason.NOT_ACTIVE, message)
        if together is None:
            message = "The partitions that are here have no snapshot together now. Ask again soon."
            return _failure(FailureReason.NOT_PRESENT, message)
        position = Position.of_snapshot(together.record.position)
        bound = request.position_bound or PositionBound.unbounded()
        if not bound.is_met_by(position):
            message = f"Snapshot {together.record.snapshot} does not reflect the position yet."
            return QueryResult(None, FailureReason.NOT_UP_TO_BOUND, message, position)
        timestamped = store.type.has_timestamps
        try:
            opened = open_store(together, store, shard.partition)
            found = answer(request.query, opened, store.value, timestamped=timestamped)
        except (StreamsError, TypeError, ValueError) as error:
            return QueryResult(None, FailureReason.STORE_EXCEPTION, str(error), position)
        return QueryResult(found, position=position)

    def all_metadata(self) -> list[StreamsMetadata]:
        """Return all known instances of the application."""
        return metadata_of(self._catalog, self._instance)

    def metadata_for_store(self, name: str) -> list[StreamsMetadata]:
        """Return the instances that have partitions of a store, as the first to ask or standby.

        Raises:
            QueryProblemError: There is no such store.
        """
        store = self._catalog.store(name).name
        return [
            each
            for each in metadata_of(self._catalog, self._instance)
            if store in each.state_store_names | each.standby_state_store_names
        ]

    def query_metadata_for_key(
        self, name: str, key: Any, partitioner: KeyPartitioner | None = None
    ) -> KeyQueryMetadata:
        """Return the instances that have a key.

        The partitioner chooses the partition, where the hash of the key does not.

        Raises:
            QueryProblemError: There is no such store.
        """
        store = self._catalog.store(name)
        if store.is_global:
            own = HostInfo.of_name(self._instance.name or "")
            return KeyQueryMetadata(own, frozenset(), -1)
        record = self._instance.newest_record()
        if record is None:
            return KeyQueryMetadata.not_available()
        if partitioner is None:
            encoded = store.key.serialize(key)
            shard = self._catalog.shard_of_key(store, encoded, record)
        else:
            count = len(self._catalog.shards(store, record))
            number = partitioner(name, key, None, count)
            shard = None if number is None else Shard(store.group, number)
        names = () if shard is None else self._instance.placement().get(shard, ())
        if shard is None or not names:
            return KeyQueryMetadata.not_available()
        active, *standbys = map(HostInfo.of_name, names)
        return KeyQueryMetadata(active, frozenset(standbys), shard.partition)

    def store_partition_ends(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return by store and partition the changelog end that readers see, and the newest one."""
        names = {store.changelog: store.name for store in self._catalog.stores.values()}
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for (changelog, partition), ends in sorted(self._instance.lags().items()):
            found.setdefault(names[changelog], {})[partition] = ends
        return found


def _failure(reason: FailureReason, message: str) -> QueryResult[Any]:
    return QueryResult(None, reason, message)
