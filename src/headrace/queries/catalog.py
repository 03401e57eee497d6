"""The stores of an application that can be queried: where each lies, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple

from headrace.queries.copy.layout import GLOBAL_GROUP, CopyLayout, Shard, ShardGroup, StoreLayout
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.runtime.plan import GLOBAL_SUBTOPOLOGY, ExecutionPlan, PlannedSubtopology
from headrace.runtime.snapshots import SnapshotRecord
from headrace.serdes.base import Serde
from headrace.serdes.partitioner import remembered_partition
from headrace.serdes.primitives import BytesSerde
from headrace.serdes.slots import SerdeSlot
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.base import LoggedStoreType, StoreKind
from headrace.state.store_types.lookup import bound_to, logged_type_of
from headrace.topology.naming import internal_topic, snapshots_name
from headrace.topology.nodes import ProcessorNode, SinkNode


class EntryCount(NamedTuple):
    """A count of the entries of a partition of a store."""

    history: str
    end: int
    """The end of the changelog up to which the entries were applied."""
    entries: int
    reused_until: float
    """Until when later snapshots may reuse the count, in monotonic seconds."""


@dataclass(frozen=True)
class QueryableStore:
    """A store that can be queried."""

    name: str
    changelog: str
    group: str
    """The group of its shards."""
    is_global: bool
    builder: StoreBuilder[Any] = field(repr=False)
    """The store as the program describes it, with its serdes."""
    topics: tuple[str, ...] = ()
    """The input topics of its tasks."""
    has_key_partitions: bool = True
    """Whether the hash of a key names its partition. It does not where a processor chooses the
    keys of the store, or a partitioner the partitions of its input."""

    @property
    def kind(self) -> StoreKind:
        """The kind of the store."""
        return self.builder.kind

    @property
    def key(self) -> Serde[Any]:
        """The serde of the keys."""
        return self.builder.key.need

    @property
    def value(self) -> Serde[Any]:
        """The serde of the values."""
        return self.builder.value.need

    @cached_property
    def type(self) -> LoggedStoreType:
        """The type of the store."""
        return logged_type_of(self.builder)

    @cached_property
    def raw_type(self) -> LoggedStoreType:
        """The same type of store, with keys and values as bytes."""
        key, value = (SerdeSlot(part, BytesSerde()) for part in ("key", "value"))
        return logged_type_of(replace(self.builder, key=key, value=value))

    @cached_property
    def has_timestamps(self) -> bool:
        """Return whether the store keeps a timestamp with each value."""
        return self.type.has_timestamps or self.type.is_versioned

    @cached_property
    def prefixes(self) -> dict[int, bytes]:
        """The prefix of the database keys of each partition that was asked for."""
        return {}

    @cached_property
    def point_prefixes(self) -> dict[int, bytes]:
        """The same for the entries of which a key has one."""
        return {}

    @cached_property
    def counts(self) -> dict[int, EntryCount]:
        """The last count of each partition that somebody asked for."""
        return {}


@dataclass(frozen=True)
class Catalog:
    """The queryable stores of one program."""

    application_id: str
    layout: CopyLayout
    stores: Mapping[str, QueryableStore]
    snapshots_topic: str

    def store(self, name: str) -> QueryableStore:
        """Return a store by its name.

        Raises:
            QueryProblemError: There is no such store.
        """
        found = self.stores.get(name)
        if found is not None:
            return found
        near = get_close_matches(name, self.stores, n=3)
        if near:
            hint = f"Did you mean {' or '.join(map(repr, near))}?"
        elif self.stores:
            hint = f"Its stores are {sorted(self.stores)}."
        else:
            hint = "It has none: name one with `materialized=`."
        msg = f"Application {self.application_id!r} has no queryable store {name!r}. {hint}"
        raise QueryProblemError(ProblemCode.UNKNOWN_STORE, msg)

    def shards(self, store: QueryableStore, record: SnapshotRecord) -> list[Shard]:
        """Return the shards of a store in a snapshot, in the order of their partitions."""
        count = len(record.ends.get(store.changelog, ()))
        return [Shard(store.group, partition) for partition in range(count)]

    def shard_of_key(
        self, store: QueryableStore, key: bytes, record: SnapshotRecord
    ) -> Shard | None:
        """Return the shard of a key in a snapshot.

        None: any shard may have the key, so all are asked.
        """
        count = len(record.ends.get(store.changelog, ()))
        if count == 1:
            return Shard(store.group, 0)
        if not store.has_key_partitions or not count:
            return None
        for topic in store.topics:
            offsets = record.position.get(topic)
            if offsets is not None and len(offsets) != count:
                return None  # keys of a topic with fewer partitions lie elsewhere
        base_key = getattr(store.key, "base_key", None)
        hashed = key if base_key is None else base_key(key)
        return Shard(store.group, remembered_partition(hashed, count))


def catalog_of(plan: ExecutionPlan) -> Catalog:
    """Return the queryable stores of a program."""
    stores = {}
    groups: dict[str, list[StoreLayout]] = {}
    for topic, (number, builder) in plan.changelogs.items():
        store = _queryable(plan, topic, number, builder)
        stores[store.name] = store
        groups.setdefault(store.group, []).append(layout_of(topic, store.type))
    layout = CopyLayout(
        plan.stores_digest,
        tuple(
            ShardGroup(name, tuple(members), is_global=name == GLOBAL_GROUP)
            for name, members in groups.items()
        ),
    )
    return Catalog(plan.application_id, layout, stores, snapshots_name(plan.application_id))


def _queryable(
    plan: ExecutionPlan, topic: str, number: int, builder: StoreBuilder[Any]
) -> QueryableStore:
    bound = bound_to(builder, builder.changelog or topic)
    if number == GLOBAL_SUBTOPOLOGY:
        return QueryableStore(builder.name, topic, GLOBAL_GROUP, is_global=True, builder=bound)
    subtopology = plan.subtopology(number)
    return QueryableStore(
        builder.name,
        topic,
        str(number),
        is_global=False,
        builder=bound,
        topics=subtopology.topics,
        has_key_partitions=not _chooses_keys(subtopology, builder.name)
        and not _chooses_partitions(plan, subtopology),
    )


def _chooses_keys(subtopology: PlannedSubtopology, store: str) -> bool:
    """Return whether user code writes the store, so that its keys need not be those of records."""
    return any(
        store in node.stores and node.operation.may_schedule
        for node in subtopology.nodes.values()
        if isinstance(node, ProcessorNode)
    )


def _chooses_partitions(plan: ExecutionPlan, subtopology: PlannedSubtopology) -> bool:
    """Return whether a partitioner of the program chooses the partitions of an input.

    Loop topics do not count: what comes back through one goes to where its key is.
    """
    inputs = {*subtopology.repartitions, *subtopology.topics}.difference(plan.loops)
    for each in plan.subtopologies:
        for node in each.nodes.values():
            if isinstance(node, SinkNode) and node.partitioner is not None:
                topic = node.topic
                if node.internal and isinstance(topic, str):
                    topic = internal_topic(plan.application_id, topic)
                if not isinstance(topic, str) or topic in inputs:
                    return True
    return False


def layout_of(changelog: str, store_type: LoggedStoreType) -> StoreLayout:
    """Return how a copy arranges the entries of a store."""
    if not store_type.has_segments:
        return StoreLayout(changelog)

    def first_segment(times: Mapping[str, Any] | None) -> int:
        return store_type.first_segment(times or {})

    if not store_type.replaces:
        return StoreLayout(changelog, first_segment=first_segment, apply=store_type.apply)
    return StoreLayout(
        changelog,
        lambda key, _timestamp: store_type.segment(store_type.entry_key(key)),
        first_segment,
        store_type.entry_key,
    )
