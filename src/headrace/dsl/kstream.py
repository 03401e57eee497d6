"""KStream: a stream of independent records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar, overload

from headrace.dsl.branched import BranchedKStream
from headrace.dsl.functions import checked_arity, wants_key, with_key
from headrace.dsl.global_ktable import GlobalKTable
from headrace.dsl.grouped import KGroupedStream
from headrace.dsl.handles import Handle, checked_together, key_value_store, slot_after, slot_kept
from headrace.dsl.options import Stored, StoreType, materialized_of
from headrace.dsl.processor_step import add_processor_step
from headrace.dsl.stream_joins import JoinOptions, joined
from headrace.durations import Duration
from headrace.errors import TopologyError
from headrace.processors.api import FixedKeyProcessor, Processor
from headrace.processors.branch import PassThrough
from headrace.processors.filter import Filter, FilterNot
from headrace.processors.map import (
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    MapValuesWithKey,
    SelectKey,
)
from headrace.processors.operation import Operation
from headrace.processors.peek import Peek, Print
from headrace.processors.table_source import TableSource
from headrace.records import RecordContext
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import (
    item_pair_serdes,
    item_serde,
    pair_serdes,
    return_serde,
)
from headrace.serdes.slots import lost
from headrace.state.names import checked_name
from headrace.state.specs import StoreBuilder
from headrace.topology.nodes import ProcessorNode, SinkNode
from headrace.windows.join_windows import JoinWindows

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VO = TypeVar("VO")

_REMEDY = "Give both merged streams the same `{}=`"


@dataclass(frozen=True)
class KStream(Handle, Generic[K, V]):
    """A stream of independent records. Every operation adds a step and returns a new handle.

    Every step takes ``name=``, in place of a generated name such as ``KSTREAM-FILTER-0000000001``.
    """

    needs_repartition: bool = False
    """Whether keys may have changed since the records were partitioned."""

    def filter(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which ``predicate(key, value)`` is true."""
        return self._same(self._step("KSTREAM-FILTER-", Filter(predicate), name, predicate))

    def filter_not(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which ``predicate(key, value)`` is false."""
        return self._same(self._step("KSTREAM-FILTER-", FilterNot(predicate), name, predicate))

    def map(
        self,
        mapper: Callable[[K, V], tuple[K2, V2]],
        *,
        key: SerdeLike[K2] | None = None,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace each record by the pair ``mapper(key, value)``; grouping then repartitions."""
        node = self._step("KSTREAM-MAP-", Map(mapper), name, mapper, changes_key=True)
        deduced_key, deduced_value = pair_serdes(mapper)
        return KStream(
            node,
            self.graph,
            slot_after("key", node, key, deduced_key),
            slot_after("value", node, value, deduced_value),
            self.sources,
            needs_repartition=True,
        )

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2],
        *,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V2],
        *,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[..., V2],
        *,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace each value by ``mapper(value)`` or ``mapper(key, value)``."""
        node = self.graph.name("KSTREAM-MAPVALUES-", name)
        if wants_key(mapper, 1, step=node):
            operation: Operation = MapValuesWithKey(mapper)
        else:
            operation = MapValues(mapper)
        self._add(node, operation, changes_value=True)
        return replace(
            self._same(node),
            value_slot=slot_after("value", node, value, return_serde(mapper)),
        )  # type: ignore[return-value]  # the slot is what changes the type

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[K2, V2]]],
        *,
        key: SerdeLike[K2] | None = None,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace each record by the pairs of ``mapper(key, value)``: none, one or many."""
        node = self._step("KSTREAM-FLATMAP-", FlatMap(mapper), name, mapper, changes_key=True)
        deduced_key, deduced_value = item_pair_serdes(mapper)
        return KStream(
            node,
            self.graph,
            slot_after("key", node, key, deduced_key),
            slot_after("value", node, value, deduced_value),
            self.sources,
            needs_repartition=True,
        )

    @overload
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V2]],
        *,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self,
        mapper: Callable[[K, V], Iterable[V2]],
        *,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self,
        mapper: Callable[..., Iterable[V2]],
        *,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Make a record of each item of ``mapper(value)`` or ``mapper(key, value)``."""
        node = self.graph.name("KSTREAM-FLATMAPVALUES-", name)
        self._add(node, FlatMapValues(with_key(mapper, 1, step=node)), changes_value=True)
        return replace(
            self._same(node),
            value_slot=slot_after("value", node, value, item_serde(mapper)),
        )  # type: ignore[return-value]  # the slot is what changes the type

    def select_key(
        self,
        mapper: Callable[[K, V], K2],
        *,
        key: SerdeLike[K2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V]:
        """Give each record the key ``mapper(key, value)``; grouping then repartitions."""
        node = self._step("KSTREAM-KEY-SELECT-", SelectKey(mapper), name, mapper, changes_key=True)
        return KStream(
            node,
            self.graph,
            slot_after("key", node, key, return_serde(mapper)),
            self.value_slot,
            self.sources,
            needs_repartition=True,
        )

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call ``action(key, value)`` for each record, then pass it on."""
        return self._same(self._step("KSTREAM-PEEK-", Peek(action), name, action))

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call ``action(key, value)`` for each record, as the end of the stream."""
        self._step("KSTREAM-FOREACH-", Peek(action), name, action)

    def print(
        self,
        *,
        file: TextIO | Path | None = None,
        label: str | None = None,
        mapper: Callable[[K, V], str] | None = None,
        name: str | None = None,
    ) -> None:
        """Write each record as ``[label]: key, value``, as the end of the stream.

        On Spark that happens in its workers, whose standard output is in ``spark.log`` in the
        application's folder of ``state.dir``.

        Args:
            file: Where to write: an open text file, a path to append to, or standard output.
            label: What to write before each record; the node before this one if left out.
            mapper: Makes the text after the label, in place of ``key, value``.
            name: Name of the step.
        """
        operation = Print(self.node if label is None else label, file, mapper)
        self._step("KSTREAM-PRINTER-", operation, name, mapper)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Return one stream with the records of both; nothing is promised of their order."""
        node = self.graph.name("KSTREAM-MERGE-", name)
        checked_together(self, other, step=node)
        self.graph.add(
            ProcessorNode(
                name=node,
                parents=tuple(dict.fromkeys((self.node, other.node))),
                operation=PassThrough(),
                merges=True,
            )
        )
        agree = self.key_slot == other.key_slot, self.value_slot == other.value_slot
        return KStream(
            node,
            self.graph,
            self.key_slot if agree[0] else lost("key", node, _REMEDY.format("key")),
            self.value_slot if agree[1] else lost("value", node, _REMEDY.format("value")),
            self.sources | other.sources,
            needs_repartition=self.needs_repartition or other.needs_repartition,
        )

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Start to divide the stream: each record goes down the first branch that takes it.

        Args:
            name: The prefix of the names of the branches.
        """
        return BranchedKStream(self, name)

    def repartition(
        self,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        partitions: int | None = None,
        partitioner: Callable[[str, K, V, int], int | Iterable[int] | None] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Move each record to the partition of its key.

        Args:
            key: Type or serde of the keys.
            value: Type or serde of the values.
            partitions: How many partitions to spread over; as many as upstream if left out.
            partitioner: Chooses the partition: ``f(topic, key, value, partitions)``.
            name: Name of the step, and of what lies between.
        """
        if partitions is not None and partitions < 1:
            msg = f"`partitions` of `repartition` is {partitions}. Use one or more."
            raise TopologyError(msg)
        if partitioner is not None:
            checked_arity(partitioner, 4, step=name or "repartition")
        if name is None:
            prefix = self.graph.name("KSTREAM-REPARTITION-")
        else:
            prefix = checked_name(name, what="step")
        key_slot, value_slot = slot_kept(self.key_slot, key), slot_kept(self.value_slot, value)
        node = self.graph.repartition(
            self.node,
            prefix,
            key_slot,
            value_slot,
            mergeable=False,
            partitions=partitions,
            partitioner=partitioner,
            generated_name=name is None,
        )
        self.graph.add(node)
        return KStream(node.name, self.graph, key_slot, value_slot, frozenset({node.name}))

    def to(
        self,
        topic: str | Callable[[K, V, RecordContext], str],
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        partitioner: Callable[[str, K, V, int], int | Iterable[int] | None] | None = None,
        name: str | None = None,
    ) -> None:
        """Write each record to a topic, as the end of the stream.

        Args:
            topic: The topic, or a function that chooses it: ``f(key, value, record_context)``.
            key: Type or serde of the keys.
            value: Type or serde of the values.
            partitioner: Chooses the partition: ``f(topic, key, value, partitions)``; without one
                the hash of the key does, as in Kafka.
            name: Name of the step.
        """
        node = self.graph.name("KSTREAM-SINK-", name)
        if isinstance(topic, str):
            checked_name(topic, what="topic")
        else:
            checked_arity(topic, 3, step=node)
        if partitioner is not None:
            checked_arity(partitioner, 4, step=node)
        self.graph.add(
            SinkNode(
                name=node,
                parents=(self.node,),
                topic=topic,
                key=slot_kept(self.key_slot, key),
                value=slot_kept(self.value_slot, value),
                partitioner=partitioner,
            )
        )

    def to_table(
        self,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Read the stream as a table: each record sets its key's value, None deletes it."""
        from headrace.dsl.ktable import KTable  # each needs the other's class

        stored = materialized_of(materialized)
        node = self.graph.name("KSTREAM-TOTABLE-", name)
        store = stored.name or self.graph.store_name("KSTREAM-TOTABLE-")
        key_slot = slot_kept(slot_kept(self.key_slot, key), stored.key)
        value_slot = slot_kept(slot_kept(self.value_slot, value), stored.value)
        parent, sources = self.node, self.sources
        if self.needs_repartition:
            between = self.graph.repartition(
                parent, node, key_slot, value_slot, generated_name=name is None
            )
            parent, sources = self.graph.add(between), frozenset({between.name})
        self.graph.add_store(key_value_store(store, stored, key_slot, value_slot))
        self.graph.add(
            ProcessorNode(
                name=node,
                parents=(parent,),
                operation=TableSource(lazy_store=store, store_name=stored.name),
                stores=() if stored.name is None else (store,),
                versioned=stored.history_retention_ms is not None,
            )
        )
        return KTable(node, self.graph, key_slot, value_slot, sources, stored.name)

    def group_by_key(
        self,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K, V]:
        """Group the records by their key, to aggregate them.

        Args:
            key: Type or serde of the keys.
            value: Type or serde of the values.
            name: Name of the grouping: of the repartition, where one is needed.
        """
        return KGroupedStream(
            self.node,
            self.graph,
            slot_kept(self.key_slot, key),
            slot_kept(self.value_slot, value),
            self.sources,
            needs_repartition=self.needs_repartition,
            name=None if name is None else checked_name(name, what="step"),
        )

    def group_by(
        self,
        mapper: Callable[[K, V], K2],
        *,
        key: SerdeLike[K2] | None = None,
        value: SerdeLike[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]:
        """Group the records by ``mapper(key, value)``, to aggregate them.

        Args:
            mapper: Chooses the key to group by.
            key: Type or serde of those keys.
            value: Type or serde of the values.
            name: Name of the grouping: of the step, and of the repartition it needs.
        """
        keyed = self.select_key(mapper, key=key, name=name)
        return keyed.group_by_key(value=value, name=name)

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], V2],
        windows: JoinWindows,
        *,
        value: SerdeLike[V2] | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], V2],
        windows: JoinWindows,
        *,
        value: SerdeLike[V2] | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], V2],
        *,
        value: SerdeLike[V2] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO], V2],
        *,
        value: SerdeLike[V2] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[K2, VO],
        joiner: Callable[[V, VO], V2],
        *,
        on: Callable[[K, V], K2 | None],
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[K2, VO],
        joiner: Callable[[K, V, VO], V2],
        *,
        on: Callable[[K, V], K2 | None],
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def join(
        self,
        other: KStream[K, VO] | KTable[K, VO] | GlobalKTable[Any, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        value: SerdeLike[V2] | None = None,
        grace: Duration | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Join each record with its partners: of a stream, a table or a global table.

        Args:
            other: A stream, whose records in the window are joined; a table, whose value of the
                same key is; or a global table.
            joiner: Makes the new value: ``joiner(value, other)`` or ``joiner(key, value, other)``.
            windows: How far apart in time the records of two streams may be.
            on: The key to look up in a global table: ``on(key, value)``.
            value: Type or serde of the new values.
            grace: How long to wait for late updates of a versioned table.
            store_name: What to call the stores of two streams.
            store_type: Where those stores live.
            logging: Whether those stores have changelog topics; a mapping sets their options.
            name: Name of the step, and of a repartition that it needs.
        """
        options = JoinOptions(
            kind="join",
            windows=windows,
            on=on,
            value=value,
            grace=grace,
            store_name=store_name,
            store_type=store_type,
            logging=logging,
            name=name,
        )
        return joined(self, other, joiner, options)

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], V2],
        windows: JoinWindows,
        *,
        value: SerdeLike[V2] | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        windows: JoinWindows,
        *,
        value: SerdeLike[V2] | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], V2],
        *,
        value: SerdeLike[V2] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        *,
        value: SerdeLike[V2] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, VO],
        joiner: Callable[[V, VO | None], V2],
        *,
        on: Callable[[K, V], K2 | None],
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, VO],
        joiner: Callable[[K, V, VO | None], V2],
        *,
        on: Callable[[K, V], K2 | None],
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def left_join(
        self,
        other: KStream[K, VO] | KTable[K, VO] | GlobalKTable[Any, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        value: SerdeLike[V2] | None = None,
        grace: Duration | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Join as `join` does, and records that find no partner with None.

        Of two streams a left record that finds none comes out when its window has closed.
        """
        options = JoinOptions(
            kind="left_join",
            windows=windows,
            on=on,
            value=value,
            grace=grace,
            store_name=store_name,
            store_type=store_type,
            logging=logging,
            name=name,
        )
        return joined(self, other, joiner, options)

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], V2],
        windows: JoinWindows,
        *,
        value: SerdeLike[V2] | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], V2],
        windows: JoinWindows,
        *,
        value: SerdeLike[V2] | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows,
        *,
        value: SerdeLike[V2] | None = None,
        store_name: str | None = None,
        store_type: StoreType | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Join two streams as `join` does, and records of both that find no partner with None."""
        options = JoinOptions(
            kind="outer_join",
            windows=windows,
            value=value,
            store_name=store_name,
            store_type=store_type,
            logging=logging,
            name=name,
        )
        return joined(self, other, joiner, options)

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *,
        stores: Iterable[str | StoreBuilder[Any]] = (),
        key: SerdeLike[K2] | None = None,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Hand each record to a `Processor`, which may forward any records.

        Args:
            supplier: Makes a new processor: the class, a lambda, a partial.
            stores: Stores it uses: builders, or names of stores that were added.
            key: Type or serde of the keys it forwards.
            value: Type or serde of the values it forwards.
            name: Name of the step.
        """
        node = self.graph.name("KSTREAM-PROCESSOR-") if name is None else name
        add_processor_step(self, node, supplier, stores)
        return KStream(
            node,
            self.graph,
            slot_after("key", node, key),
            slot_after("value", node, value),
            self.sources,
            needs_repartition=True,
        )

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *,
        stores: Iterable[str | StoreBuilder[Any]] = (),
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Hand each record to a `FixedKeyProcessor`, which cannot change the key."""
        node = self.graph.name("KSTREAM-PROCESSVALUES-") if name is None else name
        add_processor_step(self, node, supplier, stores, fixed_key=True)
        return replace(self._same(node), value_slot=slot_after("value", node, value))  # type: ignore[return-value]  # the slot is what changes the type

    def _step(
        self,
        prefix: str,
        operation: Operation,
        given: str | None,
        function: Callable[..., Any] | None,
        *,
        changes_key: bool = False,
    ) -> str:
        node = self.graph.name(prefix, given)
        if function is not None:
            checked_arity(function, 2, step=node)
        return self._add(node, operation, changes_key=changes_key)

    def _add(
        self,
        node: str,
        operation: Operation,
        *,
        changes_key: bool = False,
        changes_value: bool = False,
    ) -> str:
        return self.graph.add(
            ProcessorNode(
                name=node,
                parents=(self.node,),
                operation=operation,
                changes_key=changes_key,
                changes_value=changes_value,
            )
        )

    def _same(self, node: str) -> KStream[K, V]:
        return replace(self, node=node)
