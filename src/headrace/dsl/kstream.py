"""KStream: a stream of independent records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar, Unpack, overload

from headrace.dsl.branched import BranchedKStream
from headrace.dsl.functions import checked_arity, wants_key, with_key
from headrace.dsl.global_ktable import GlobalKTable
from headrace.dsl.grouped import KGroupedStream
from headrace.dsl.handles import Handle, add_table, checked_together, slot_after, slot_kept
from headrace.dsl.options import (
    Stored,
    StoreType,
    StreamJoinKeywords,
    StreamTableJoinKeywords,
    ValueKeywords,
    materialized_of,
)
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
from headrace.records import K2, V2, K, RecordContext, V
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import item_pair_serdes, item_serde, pair_serdes, return_serde
from headrace.serdes.slots import SerdeSlot, lost
from headrace.state.names import checked_name
from headrace.state.specs import StoreBuilder
from headrace.topology.nodes import ProcessorNode, SinkNode
from headrace.windows.join_windows import JoinWindows

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable

VO = TypeVar("VO")

_REMEDY = "Give both merged streams the same `{}=`"


@dataclass(frozen=True)
class KStream(Handle, Generic[K, V]):
    """A stream of independent records. Its methods add steps to the topology.

    Every step has a generated name such as ``KSTREAM-FILTER-0000000001``; ``name=`` replaces it.
    """

    needs_repartition: bool = False
    """Whether keys may have changed since the records were partitioned."""

    def filter(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which ``predicate(key, value)`` is true.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.filter(lambda city, amount: amount >= 10).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Linz", 3)])
            Graz 27
        """
        return self._same(self._step("KSTREAM-FILTER-", Filter(predicate), name, predicate))

    def filter_not(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which ``predicate(key, value)`` is false.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.filter_not(lambda city, amount: amount >= 10).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Linz", 3)])
            Linz 3
        """
        return self._same(self._step("KSTREAM-FILTER-", FilterNot(predicate), name, predicate))

    def map(
        self,
        mapper: Callable[[K, V], tuple[K2, V2]],
        *,
        key: SerdeLike[K2] | None = None,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace each record by the pair ``mapper(key, value)``; grouping then repartitions.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.map(lambda city, amount: (city.upper(), amount / 3)).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Linz", 3)])
            GRAZ 9.0
            LINZ 1.0
        """
        node = self._step("KSTREAM-MAP-", Map(mapper), name, mapper, changes_key=True)
        deduced_key, deduced_value = pair_serdes(mapper)
        return self._with_new_keys(
            node,
            slot_after("key", node, key, deduced_key),
            slot_after("value", node, value, deduced_value),
        )

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], **options: Unpack[ValueKeywords[V2]]
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], **options: Unpack[ValueKeywords[V2]]
    ) -> KStream[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[..., V2],
        *,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace each value by ``mapper(value)`` or ``mapper(key, value)``.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.map_values(lambda amount: f"{amount} EUR").foreach(print)
            >>> orders.map_values(lambda city, amount: len(city) * amount).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_input("Graz", 27)
            Graz 27 EUR
            Graz 108
        """
        node = self.graph.name("KSTREAM-MAPVALUES-", name)
        if wants_key(mapper, 1, step=node):
            operation: Operation = MapValuesWithKey(mapper)
        else:
            operation = MapValues(mapper)
        self._add(node, operation, changes_value=True)
        return replace(
            self._same(node), value_slot=slot_after("value", node, value, return_serde(mapper))
        )  # type: ignore[return-value]  # the slot changes the type

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[K2, V2]]],
        *,
        key: SerdeLike[K2] | None = None,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace each record by the pairs of ``mapper(key, value)``: none, one or many.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> carts = builder.stream("carts", key=str, value=str)
            >>> items = carts.flat_map(lambda user, cart: [(item, user) for item in cart.split()])
            >>> items.foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("carts").pipe_input("ada", "tea milk")
            tea ada
            milk ada
        """
        node = self._step(
            "KSTREAM-FLATMAP-", FlatMap(mapper), name, mapper, changes_key=True, may_yield=True
        )
        deduced_key, deduced_value = item_pair_serdes(mapper)
        return self._with_new_keys(
            node,
            slot_after("key", node, key, deduced_key),
            slot_after("value", node, value, deduced_value),
        )

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[V2]], **options: Unpack[ValueKeywords[V2]]
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[[K, V], Iterable[V2]], **options: Unpack[ValueKeywords[V2]]
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self,
        mapper: Callable[..., Iterable[V2]],
        *,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace each record by one per item of ``mapper(value)`` or ``mapper(key, value)``.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> carts = builder.stream("carts", key=str, value=str)
            >>> carts.flat_map_values(lambda cart: cart.split()).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("carts").pipe_input("ada", "tea milk")
            ada tea
            ada milk
        """
        node = self.graph.name("KSTREAM-FLATMAPVALUES-", name)
        self._add(node, FlatMapValues(with_key(mapper, 1, step=node)), changes_value=True)
        return replace(
            self._same(node), value_slot=slot_after("value", node, value, item_serde(mapper))
        )  # type: ignore[return-value]  # the slot changes the type

    def select_key(
        self,
        mapper: Callable[[K, V], K2],
        *,
        key: SerdeLike[K2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V]:
        """Replace each key by ``mapper(key, value)``; grouping then repartitions.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> users = builder.stream("users", key=int, value=str)
            >>> users.select_key(lambda id, name: name[0], key=str).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("users").pipe_input(1, "Ada")
            A Ada
        """
        node = self._step("KSTREAM-KEY-SELECT-", SelectKey(mapper), name, mapper, changes_key=True)
        key_slot = slot_after("key", node, key, return_serde(mapper))
        return self._with_new_keys(node, key_slot, self.value_slot)

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call ``action(key, value)`` for each record, then forward the record.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> checked = orders.peek(lambda city, amount: print("check", city))
            >>> checked.filter(lambda city, amount: amount >= 10).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Linz", 3)])
            check Graz
            Graz 27
            check Linz
        """
        return self._same(self._step("KSTREAM-PEEK-", Peek(action), name, action))

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call ``action(key, value)`` for each record. Nothing follows this step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.foreach(lambda city, amount: print(f"{amount} EUR from {city}"))
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Linz", 3)])
            27 EUR from Graz
            3 EUR from Linz
        """
        self._step("KSTREAM-FOREACH-", Peek(action), name, action)

    def print(
        self,
        *,
        file: TextIO | Path | None = None,
        label: str | None = None,
        mapper: Callable[[K, V], str] | None = None,
        name: str | None = None,
    ) -> None:
        """Write each record as ``[label]: key, value``. Nothing follows this step.

        On Spark the workers write. Their standard output reaches the logger ``headrace.user`` of
        this process, and ``spark.log`` in the application's folder of ``work.dir``.

        Args:
            file: An open text file, or a path to append to; standard output if left out.
            label: Text before each record; the name of the step before this one if left out.
            mapper: Returns the text after the label, in place of ``key, value``.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.print(label="orders")
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Linz", 3)])
            [orders]: Graz, 27
            [orders]: Linz, 3
        """
        operation = Print(self.node if label is None else label, file, mapper)
        self._step("KSTREAM-PRINTER-", operation, name, mapper)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Return one stream with the records of both, in no guaranteed order.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> graz = builder.stream("graz", key=str, value=int)
            >>> graz.merge(builder.stream("linz", key=str, value=int)).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("linz").pipe_input("ada", 3)
            ada 3
            >>> driver.create_input_topic("graz").pipe_input("bob", 27)
            bob 27
        """
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
        """Divide the stream: each record goes to the first branch whose predicate is true.

        Args:
            name: Prefix of the names of the branches.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> split = orders.split().branch(lambda city, amount: amount >= 10, "high")
            >>> split.default_branch("low")["low"].foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Linz", 3)])
            Linz 3
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
            partitions: Number of partitions; as many as upstream if left out.
            partitioner: Chooses the partition: ``f(topic, key, value, partitions)``.
            name: Name of the step; its repartition topic ends in ``<name>-repartition``.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> users = builder.stream("users", key=int, value=str)
            >>> by_name = users.select_key(lambda id, name: name, key=str)
            >>> by_name.repartition(partitions=4, name="by-name").to("names")
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("users").pipe_input(1, "Ada")
            >>> sorted(driver.produced_topic_names())
            ['names', 'test-application-by-name-repartition']
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
        """Write each record to a topic. Nothing follows this step.

        Args:
            topic: The topic, or a function that chooses it: ``f(key, value, record_context)``.
            key: Type or serde of the keys.
            value: Type or serde of the values.
            partitioner: Chooses the partition: ``f(topic, key, value, partitions)``. If left out,
                the hash of the key chooses, as in Kafka.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.to("copy")
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_input("Graz", 27)
            >>> driver.create_output_topic("copy").read_key_value()
            ('Graz', 27)
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
        """Return the stream as a table: each record sets its key's value, None deletes it.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> prices = builder.stream("prices", key=str, value=int)
            >>> table = prices.to_table(materialized="prices")
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("prices").pipe_key_value_list([("tea", 2), ("tea", 3)])
            >>> driver.get_key_value_store("prices").get("tea")
            3
        """
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
        operation, slots = (
            TableSource(lazy_store=store, store_name=stored.name),
            (key_slot, value_slot),
        )
        return add_table(self.graph, node, (parent,), operation, slots, sources, stored, store)

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
            name: Name of the grouping, and of its repartition if the keys may have changed.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.group_by_key().count().to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Graz", 3)])
            Graz 1
            Graz 2
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
            name: Name of the grouping: of its step and of its repartition.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> users = builder.stream("users", key=int, value=str)
            >>> by_country = users.group_by(lambda id, country: country, key=str)
            >>> by_country.count().to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("users").pipe_key_value_list([(1, "at"), (2, "at")])
            at 1
            at 2
        """
        keyed = self.select_key(mapper, key=key, name=name)
        return keyed.group_by_key(value=value, name=name)

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], V2],
        windows: JoinWindows,
        **options: Unpack[StreamJoinKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], V2],
        windows: JoinWindows,
        **options: Unpack[StreamJoinKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], V2],
        **options: Unpack[StreamTableJoinKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO], V2],
        **options: Unpack[StreamTableJoinKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[K2, VO],
        joiner: Callable[[V, VO], V2],
        *,
        on: Callable[[K, V], K2 | None],
        **options: Unpack[ValueKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[K2, VO],
        joiner: Callable[[K, V, VO], V2],
        *,
        on: Callable[[K, V], K2 | None],
        **options: Unpack[ValueKeywords[V2]],
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
        """Join each record with its partners in a stream, a table or a global table.

        Args:
            other: A stream, whose records of the same key join if they are in the window; a table,
                whose value of the same key joins; or a global table.
            joiner: Returns the value: ``joiner(value, other)`` or ``joiner(key, value, other)``.
            windows: How far apart in time the records of two streams may be.
            on: Returns the key to look up in a global table: ``on(key, value)``.
            value: Type or serde of the new values.
            grace: How long to wait for late updates of a versioned table.
            store_name: Base name of the stores of two streams.
            store_type: Where those stores are.
            logging: Whether those stores have changelog topics; a mapping sets their options.
            name: Name of the step, and of its repartitions.

        Example:
            >>> from headrace import JoinWindows, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> payments = builder.stream("payments", key=str, value=int)
            >>> joined = orders.join(payments, lambda due, paid: due - paid, JoinWindows("1m"))
            >>> joined.foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_input("ada", 27)
            >>> driver.create_input_topic("payments").pipe_input("ada", 20)
            ada 7
        """
        options = JoinOptions(
            "join", windows, on, value, grace, store_name, store_type, logging, name
        )
        return joined(self, other, joiner, options)

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], V2],
        windows: JoinWindows,
        **options: Unpack[StreamJoinKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        windows: JoinWindows,
        **options: Unpack[StreamJoinKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], V2],
        **options: Unpack[StreamTableJoinKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        **options: Unpack[StreamTableJoinKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, VO],
        joiner: Callable[[V, VO | None], V2],
        *,
        on: Callable[[K, V], K2 | None],
        **options: Unpack[ValueKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, VO],
        joiner: Callable[[K, V, VO | None], V2],
        *,
        on: Callable[[K, V], K2 | None],
        **options: Unpack[ValueKeywords[V2]],
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
        """Join as `join` does, and join a record without a partner with None.

        With two streams, a left record without a partner joins when its window has closed.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> prices = builder.table("prices", key=str, value=float)
            >>> orders.left_join(prices, lambda amount, price: (amount, price)).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_input("tea", 2)
            tea (2, None)
            >>> driver.create_input_topic("prices").pipe_input("tea", 2.5)
            >>> driver.create_input_topic("orders").pipe_input("tea", 3)
            tea (3, 2.5)
        """
        options = JoinOptions(
            "left_join", windows, on, value, grace, store_name, store_type, logging, name
        )
        return joined(self, other, joiner, options)

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], V2],
        windows: JoinWindows,
        **options: Unpack[StreamJoinKeywords[V2]],
    ) -> KStream[K, V2]: ...
    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], V2],
        windows: JoinWindows,
        **options: Unpack[StreamJoinKeywords[V2]],
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
        """Join two streams as `join` does, and records of both without a partner with None.

        Example:
            >>> from headrace import JoinWindows, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> paid = builder.stream("payments", key=str, value=int)
            >>> joined = orders.outer_join(paid, lambda due, paid: (due, paid), JoinWindows("1m"))
            >>> joined.foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("payments").pipe_input("ada", 20, timestamp=0)
            >>> driver.create_input_topic("orders").pipe_input("bob", 27, timestamp=60_001)
            ada (None, 20)
        """
        options = JoinOptions(
            "outer_join", windows, None, value, None, store_name, store_type, logging, name
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
        """Process each record with a `Processor`, which may forward any records.

        Args:
            supplier: Returns a new processor: the class, a lambda, a partial.
            stores: Stores of the processor: builders, or names of stores that the builder has.
            key: Type or serde of the keys that it forwards; the type argument if left out.
            value: Type or serde of the values that it forwards; the type argument if left out.
            name: Name of the step.

        Example:
            >>> from headrace import Processor, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> class Twice(Processor[str, int, str, int]):
            ...     def process(self, record):
            ...         self.context.forward(record)
            ...         self.context.forward(record.with_value(-record.value))
            >>> builder.stream("orders", key=str, value=int).process(Twice).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_input("Graz", 27)
            Graz 27
            Graz -27
        """
        node = self.graph.name("KSTREAM-PROCESSOR-") if name is None else name
        *_, deduced_key, deduced_value = add_processor_step(self, node, supplier, stores)
        return self._with_new_keys(
            node,
            slot_after("key", node, key, deduced_key),
            slot_after("value", node, value, deduced_value),
        )

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *,
        stores: Iterable[str | StoreBuilder[Any]] = (),
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Process each record with a `FixedKeyProcessor`, which cannot change the key.

        Example:
            >>> from headrace import FixedKeyProcessor, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> class WithTime(FixedKeyProcessor[str, int, tuple[int, int]]):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value((record.value, record.timestamp)))
            >>> builder.stream("orders", key=str, value=int).process_values(WithTime).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_input("Graz", 27, timestamp=5_000)
            Graz (27, 5000)
        """
        node = self.graph.name("KSTREAM-PROCESSVALUES-") if name is None else name
        *_, deduced = add_processor_step(self, node, supplier, stores, fixed_key=True)
        slot = slot_after("value", node, value, deduced)
        return replace(self._same(node), value_slot=slot)  # type: ignore[return-value]  # the slot changes the type

    def _step(
        self,
        prefix: str,
        operation: Operation,
        name: str | None,
        function: Callable[..., Any] | None,
        *,
        changes_key: bool = False,
        may_yield: bool = False,
    ) -> str:
        node = self.graph.name(prefix, name)
        if function is not None:
            checked_arity(function, 2, step=node, may_yield=may_yield)
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

    def _with_new_keys(self, node: str, key: SerdeSlot, value: SerdeSlot) -> KStream[Any, Any]:
        return KStream(node, self.graph, key, value, self.sources, needs_repartition=True)

    def _same(self, node: str) -> KStream[K, V]:
        return replace(self, node=node)
