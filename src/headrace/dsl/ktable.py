"""KTable: the current value of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Unpack, overload

from headrace.dsl.foreign_key_joins import joined_by_foreign_key
from headrace.dsl.functions import checked_arity, with_key
from headrace.dsl.grouped_table import KGroupedTable
from headrace.dsl.handles import Handle, key_value_store, slot_after, slot_kept
from headrace.dsl.kstream import KStream
from headrace.dsl.options import (
    ForeignKeyJoinKeywords,
    Stored,
    Suppressed,
    TableKeywords,
    materialized_of,
)
from headrace.dsl.processor_step import connect_stores
from headrace.dsl.suppression import suppressed_table
from headrace.dsl.table_joins import TableJoinOptions, check_tables, joined_by_key
from headrace.processors.api import ValueTransformerWithKey
from headrace.processors.operation import TableOperation
from headrace.processors.table_group_by import TableGroupBy
from headrace.processors.table_values import (
    TableFilter,
    TableMapValues,
    TableTransformValues,
    ToStream,
)
from headrace.records import K2, V2, K, V
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import argument_serdes, pair_serdes, return_serde
from headrace.serdes.slots import SerdeSlot
from headrace.state.specs import StoreBuilder
from headrace.topology.nodes import Partitioner, ProcessorNode
from headrace.topology.suppliers import checked_transformer

KO = TypeVar("KO")
VO = TypeVar("VO")


@dataclass(frozen=True)
class KTable(Handle, Generic[K, V]):
    """The current value of each key. A record with the value None deletes its key.

    Every step has a generated name such as ``KTABLE-FILTER-0000000003``; ``name=`` replaces it.
    """

    queryable_store_name: str | None = None
    """The name that ``materialized=`` gives its store, or None."""

    def filter(
        self,
        predicate: Callable[[K, V], bool],
        *,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the rows for which ``predicate(key, value)`` is true; delete the others.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> stock = builder.table("stock", key=str, value=int)
            >>> stock.filter(lambda item, count: count > 0).to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("stock").pipe_key_value_list([("tea", 3), ("tea", 0)])
            tea 3
            tea None
        """
        return self._filter(predicate, materialized, name, negated=False)

    def filter_not(
        self,
        predicate: Callable[[K, V], bool],
        *,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the rows for which ``predicate(key, value)`` is false; delete the others.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> stock = builder.table("stock", key=str, value=int)
            >>> stock.filter_not(lambda item, count: count > 0).to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("stock").pipe_key_value_list([("tea", 0), ("tea", 3)])
            tea 0
            tea None
        """
        return self._filter(predicate, materialized, name, negated=True)

    def _filter(
        self,
        predicate: Callable[[K, V], bool],
        materialized: Stored,
        name: str | None,
        *,
        negated: bool,
    ) -> KTable[K, V]:
        self._burn_store_name(materialized, "KTABLE-FILTER-")
        node = self.graph.name("KTABLE-FILTER-", name)
        checked_arity(predicate, 2, step=node, may_yield=False)
        sends_old = self.graph.send_old_values(self.node, materialize=False)
        store = materialized_of(materialized).name
        operation = TableFilter(
            predicate=predicate, negated=negated, store_name=store, sends_old_values=sends_old
        )
        return self._computed(node, operation, materialized, self.value_slot)

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], **options: Unpack[TableKeywords[V2]]
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], **options: Unpack[TableKeywords[V2]]
    ) -> KTable[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[..., V2],
        *,
        value: SerdeLike[V2] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Replace each value by ``mapper(value)`` or ``mapper(key, value)``.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> stock = builder.table("stock", key=str, value=int)
            >>> left = stock.map_values(lambda count: "sold out" if count == 0 else "available")
            >>> left.to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("stock").pipe_key_value_list([("tea", 3), ("tea", 0)])
            tea available
            tea sold out
        """
        self._burn_store_name(materialized, "KTABLE-MAPVALUES-")
        node = self.graph.name("KTABLE-MAPVALUES-", name)
        operation = TableMapValues(
            mapper=with_key(mapper, 1, step=node), store_name=materialized_of(materialized).name
        )
        slot = slot_after("value", node, value, return_serde(mapper))
        return self._computed(node, operation, materialized, slot)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformerWithKey[K, V, V2]],
        *,
        stores: Iterable[str | StoreBuilder[Any]] = (),
        value: SerdeLike[V2] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Replace each value by the value that a `ValueTransformerWithKey` returns.

        Args:
            supplier: Returns a new transformer: the class, a lambda, a partial.
            stores: Stores of the transformer: builders, or names of stores that the builder has.
            value: Type or serde of the new values.
            materialized: How to store the result.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder, ValueTransformerWithKey
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> class Label(ValueTransformerWithKey[str, int, str]):
            ...     def transform(self, item, count):
            ...         return f"{count} {item}"
            >>> stock = builder.table("stock", key=str, value=int)
            >>> stock.transform_values(Label, value=str).to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("stock").pipe_input("tea", 3)
            tea 3 tea
        """
        node = self.graph.name("KTABLE-TRANSFORMVALUES-", name)
        supplied = checked_transformer(supplier, node)
        store = materialized_of(materialized).name
        operation = TableTransformValues(supplier=supplier, store_name=store)
        *_, deduced = argument_serdes(supplied.type, ValueTransformerWithKey)
        slot = slot_after("value", node, value, deduced)
        table: KTable[K, V2] = self._computed(node, operation, materialized, slot)
        connect_stores(table, node, stores, supplied.stores)
        return table

    @overload
    def to_stream(self, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(
        self,
        mapper: Callable[[K, V], K2],
        *,
        key: SerdeLike[K2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V]: ...
    def to_stream(
        self,
        mapper: Callable[[K, V], K2] | None = None,
        *,
        key: SerdeLike[Any] | None = None,
        name: str | None = None,
    ) -> KStream[Any, V]:
        """Return the changes as a stream; a deletion is a record with the value None.

        Args:
            mapper: Replaces the key of each record, as in `KStream.select_key`.
            key: Type or serde of the new keys.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> stock = builder.table("stock", key=str, value=int)
            >>> stock.to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("stock").pipe_key_value_list([("tea", 3), ("tea", None)])
            tea 3
            tea None
        """
        node = self.graph.name("KTABLE-TOSTREAM-", name)
        self.graph.add(ProcessorNode(name=node, parents=(self.node,), operation=ToStream()))
        stream: KStream[K, V] = KStream(
            node,
            self.graph,
            slot_kept(self.key_slot, key if mapper is None else None),
            self.value_slot,
            self.sources,
        )
        return stream if mapper is None else stream.select_key(mapper, key=key)

    def group_by(
        self,
        mapper: Callable[[K, V], tuple[K2, V2] | None],
        *,
        key: SerdeLike[K2] | None = None,
        value: SerdeLike[V2] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Group the rows by another key, to aggregate them.

        Args:
            mapper: Returns the group of a row and its value there: ``mapper(key, value)``. A row
                for which it returns None, or a pair that contains None, is in no group.
            key: Type or serde of the groups.
            value: Type or serde of the values in them.
            name: Name of the grouping: of its step and of its repartition.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> users = builder.table("users", key=str, value=str)
            >>> by_city = users.group_by(lambda user, city: (city, user), key=str, value=str)
            >>> by_city.count().to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> topic = driver.create_input_topic("users")
            >>> topic.pipe_key_value_list([("ada", "Graz"), ("bob", "Graz"), ("ada", "Linz")])
            Graz 1
            Graz 2
            Graz 1
            Linz 1
        """
        node = self.graph.name("KTABLE-SELECT-", name)
        checked_arity(mapper, 2, step=node)
        self.graph.add(
            ProcessorNode(name=node, parents=(self.node,), operation=TableGroupBy(mapper=mapper))
        )
        self.graph.send_old_values(self.node, materialize=True)
        deduced_key, deduced_value = pair_serdes(mapper)
        return KGroupedTable(
            node,
            self.graph,
            slot_after("key", node, key, deduced_key),
            slot_after("value", node, value, deduced_value),
            self.sources,
            name,
        )

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Hold changes back, so that fewer of them, or only the last, leave the table.

        Example:
            >>> from headrace import StreamsBuilder, Suppressed, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int).group_by_key()
            >>> counts = orders.windowed_by(TimeWindows("10s")).count()
            >>> counts.suppress(Suppressed.until_window_closes()).to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            >>> topic.pipe_input("Linz", 9, timestamp=10_000)
            [Graz@0/10000] 2
        """
        return suppressed_table(self, suppressed)

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], V2],
        **options: Unpack[TableKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO], V2],
        **options: Unpack[TableKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO], V2],
        *,
        foreign_key: Callable[[V], KO | None],
        **options: Unpack[ForeignKeyJoinKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[K, V, VO], V2],
        *,
        foreign_key: Callable[[V], KO | None],
        **options: Unpack[ForeignKeyJoinKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO], V2],
        *,
        foreign_key: Callable[[K, V], KO | None],
        **options: Unpack[ForeignKeyJoinKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[K, V, VO], V2],
        *,
        foreign_key: Callable[[K, V], KO | None],
        **options: Unpack[ForeignKeyJoinKeywords[V2]],
    ) -> KTable[K, V2]: ...
    def join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[..., V2],
        *,
        foreign_key: Callable[..., Any] | None = None,
        value: SerdeLike[V2] | None = None,
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Join with another table: each row that has a partner there has a row in the result.

        Args:
            other: The other table.
            joiner: Returns the result: ``f(value, other_value)`` or ``f(key, value, other_value)``.
            foreign_key: Returns the key of the other table that a row joins: ``f(value)`` or
                ``f(key, value)``; None for no partner. If left out, rows of the same key join.
            value: Type or serde of the results.
            partitioner: With ``foreign_key``: how this table is partitioned, if not by the hash of
                its key: ``f(topic, key, None, partitions)`` returns one partition.
            other_partitioner: With ``foreign_key``: how the other table is partitioned.
            materialized: How to store the result.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> users = builder.table("users", key=str, value=int)
            >>> cities = builder.table("cities", key=int, value=str)
            >>> homes = users.join(cities, lambda area, city: city, foreign_key=lambda area: area)
            >>> homes.to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("users").pipe_input("ada", 8010)
            >>> driver.create_input_topic("cities").pipe_input(8010, "Graz")
            ada Graz
        """
        options = TableJoinOptions(
            "join", foreign_key, value, partitioner, other_partitioner, materialized, name
        )
        return self._joined(other, joiner, options)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], V2],
        **options: Unpack[TableKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        **options: Unpack[TableKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO | None], V2],
        *,
        foreign_key: Callable[[V], KO | None],
        **options: Unpack[ForeignKeyJoinKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[K, V, VO | None], V2],
        *,
        foreign_key: Callable[[V], KO | None],
        **options: Unpack[ForeignKeyJoinKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO | None], V2],
        *,
        foreign_key: Callable[[K, V], KO | None],
        **options: Unpack[ForeignKeyJoinKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[K, V, VO | None], V2],
        *,
        foreign_key: Callable[[K, V], KO | None],
        **options: Unpack[ForeignKeyJoinKeywords[V2]],
    ) -> KTable[K, V2]: ...
    def left_join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[..., V2],
        *,
        foreign_key: Callable[..., Any] | None = None,
        value: SerdeLike[V2] | None = None,
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Join as `join` does, with the same arguments, and a row without a partner with None.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> stock = builder.table("stock", key=str, value=int)
            >>> prices = builder.table("prices", key=str, value=int)
            >>> offers = stock.left_join(prices, lambda count, price: (count, price))
            >>> offers.to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("stock").pipe_input("tea", 3)
            tea (3, None)
            >>> driver.create_input_topic("prices").pipe_input("tea", 2)
            tea (3, 2)
        """
        options = TableJoinOptions(
            "left_join", foreign_key, value, partitioner, other_partitioner, materialized, name
        )
        return self._joined(other, joiner, options)

    @overload
    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], V2],
        **options: Unpack[TableKeywords[V2]],
    ) -> KTable[K, V2]: ...
    @overload
    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V | None, VO | None], V2],
        **options: Unpack[TableKeywords[V2]],
    ) -> KTable[K, V2]: ...
    def outer_join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[..., V2],
        *,
        value: SerdeLike[V2] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Join with another table: each key of either has a row; a missing value is None.

        The arguments are those of `join`.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> stock = builder.table("stock", key=str, value=int)
            >>> prices = builder.table("prices", key=str, value=int)
            >>> offers = stock.outer_join(prices, lambda count, price: (count, price))
            >>> offers.to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("prices").pipe_input("tea", 2)
            tea (None, 2)
            >>> driver.create_input_topic("stock").pipe_input("tea", 3)
            tea (3, 2)
        """
        options = TableJoinOptions("outer_join", value=value, materialized=materialized, name=name)
        return self._joined(other, joiner, options)

    def _joined(
        self, other: KTable[Any, Any], joiner: Callable[..., V2], options: TableJoinOptions
    ) -> KTable[K, V2]:
        check_tables(self, other, options)
        join = joined_by_key if options.foreign_key is None else joined_by_foreign_key
        return join(self, other, joiner, options)

    def _burn_store_name(self, materialized: Stored, prefix: str) -> None:
        # Kafka uses up an index for a store without a name, although it adds no store.
        if materialized is not None and materialized_of(materialized).name is None:
            self.graph.store_name(prefix)

    def _computed(
        self, node: str, operation: TableOperation, materialized: Stored, value: SerdeSlot
    ) -> KTable[K, Any]:
        """Add a table that ``operation`` computes from this one, row by row."""
        stored = materialized_of(materialized)
        key_slot = slot_kept(self.key_slot, stored.key)
        value_slot = slot_kept(value, stored.value)
        if stored.name is not None:
            self.graph.add_store(key_value_store(stored.name, stored, key_slot, value_slot))
        self.graph.add(
            ProcessorNode(
                name=node,
                parents=(self.node,),
                operation=operation,
                stores=() if stored.name is None else (stored.name,),
                # Without a name there is no store. In Kafka it still ends a versioned table.
                versioned=(
                    None if materialized is None else stored.history_retention_ms is not None
                ),
            )
        )
        return KTable(node, self.graph, key_slot, value_slot, self.sources, stored.name)
