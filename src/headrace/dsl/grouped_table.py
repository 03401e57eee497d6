"""KGroupedTable: the rows of a table grouped by another key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from headrace.aggregators import A, Aggregation
from headrace.dsl.aggregation import aggregate_slot
from headrace.dsl.functions import checked_arity
from headrace.dsl.handles import Handle, add_table
from headrace.dsl.options import Stored, TableKeywords, materialized_of
from headrace.errors import TopologyError
from headrace.processors.aggregate import StoredTable, add_one, zero
from headrace.processors.table_aggregate import TableAggregate, TableReduce
from headrace.records import K, V
from headrace.serdes.base import Serde, SerdeLike
from headrace.serdes.change_serde import ChangeSerde
from headrace.serdes.deduce import return_serde, serde_for
from headrace.serdes.slots import SerdeSlot
from headrace.topology.naming import REPARTITION_SUFFIX
from headrace.topology.nodes import RepartitionNode

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable


@dataclass(frozen=True)
class KGroupedTable(Handle, Generic[K, V]):
    """The rows of a table grouped by another key.

    An aggregation subtracts the old value of a row that changes, then adds its new value.
    """

    name: str | None = None
    """The name of the grouping, and of its repartition."""

    def count(self, *, materialized: Stored = None, name: str | None = None) -> KTable[K, int]:
        """Count the rows of each group. A group that loses its last row stays, with 0.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> users = builder.table("users", key=str, value=str)
            >>> by_city = users.group_by(lambda user, city: (city, user), key=str, value=str)
            >>> by_city.count().to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> topic = driver.create_input_topic("users")
            >>> topic.pipe_key_value_list([("ada", "Graz"), ("ada", "Linz")])
            Graz 1
            Graz 0
            Linz 1
        """

        def operation(store: str) -> StoredTable:
            return TableAggregate(
                initializer=zero, adder=add_one, subtractor=_subtract_one, store_name=store
            )

        slot = SerdeSlot("value", serde_for(int))
        return self._aggregated("KTABLE-AGGREGATE-", slot, operation, materialized, name)

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each group; the first value is the first aggregate.

        Args:
            adder: Returns the aggregate with a value that enters the group:
                ``adder(aggregate, value)``.
            subtractor: Returns the aggregate without a value that leaves the group:
                ``subtractor(aggregate, value)``. It runs before the adder if a value changes. None
                deletes the aggregate.
            materialized: How to store the result.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> stock = builder.table("stock", key=str, value=int)
            >>> total = stock.group_by(lambda item, count: ("all", count), key=str, value=int)
            >>> sums = total.reduce(lambda sum, count: sum + count, lambda sum, count: sum - count)
            >>> sums.to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> topic = driver.create_input_topic("stock")
            >>> topic.pipe_key_value_list([("tea", 3), ("milk", 4), ("tea", 1)])
            all 3
            all 7
            all 5
        """
        checked_arity(adder, 2, step=name or "reduce")
        checked_arity(subtractor, 2, step=name or "reduce")

        def operation(store: str) -> StoredTable:
            return TableReduce(adder=adder, subtractor=subtractor, store_name=store)

        return self._aggregated("KTABLE-REDUCE-", self.value_slot, operation, materialized, name)

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        **options: Unpack[TableKeywords[A]],
    ) -> KTable[K, A]: ...
    @overload
    def aggregate(
        self, initializer: Aggregation[V, A], **options: Unpack[TableKeywords[A]]
    ) -> KTable[K, A]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        adder: Callable[[Any, Any, Any], Any] | None = None,
        subtractor: Callable[[Any, Any, Any], Any] | None = None,
        *,
        value: SerdeLike[Any] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Fold the values of each group into an aggregate.

        Args:
            initializer: Returns the aggregate of a new group; or a ready-made aggregation of
                `headrace.aggregators` that can also subtract.
            adder: Returns the aggregate with a value that enters the group:
                ``adder(key, value, aggregate)``. It may change its argument and return that.
            subtractor: Returns the aggregate without a value that leaves the group:
                ``subtractor(key, value, aggregate)``. It runs before the adder if a value changes.
                None deletes the aggregate.
            value: Type or serde of the aggregates, if the functions do not state it.
            materialized: How to store the result.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> stock = builder.table("stock", key=str, value=int)
            >>> total = stock.group_by(lambda item, count: ("all", count), key=str, value=int)
            >>> add, subtract = (lambda _, n, sum: sum + n), (lambda _, n, sum: sum - n)
            >>> total.aggregate(int, add, subtract).to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> topic = driver.create_input_topic("stock")
            >>> topic.pipe_key_value_list([("tea", 3), ("milk", 4), ("tea", 1)])
            all 3
            all 7
            all 5
        """
        start, add, subtract, deduced = _unpacked(initializer, adder, subtractor, name)

        def operation(store: str) -> StoredTable:
            return TableAggregate(
                initializer=start, adder=add, subtractor=subtract, store_name=store
            )

        slot = aggregate_slot(value, initializer, deduced, self.value_slot)
        return self._aggregated("KTABLE-AGGREGATE-", slot, operation, materialized, name)

    def _aggregated(
        self,
        prefix: str,
        value: SerdeSlot | Callable[[str], SerdeSlot],
        operation: Callable[[str], StoredTable],
        materialized: Stored,
        name: str | None,
    ) -> KTable[K, Any]:
        graph, stored = self.graph, materialized_of(materialized)
        # Kafka names the store of a reduction like that of an aggregation.
        store = stored.name or graph.store_name("KTABLE-AGGREGATE-")
        sink = graph.suffixed("KSTREAM-SINK-", name, "-sink")
        source = graph.suffixed("KSTREAM-SOURCE-", name, "-source")
        node = graph.name(prefix, name)
        slots = self.key_slot, value if isinstance(value, SerdeSlot) else value(node)
        between = RepartitionNode(
            name=source,
            source=source,
            parents=(self.node,),
            topic=(self.name or store) + REPARTITION_SUFFIX,
            sink=sink,
            filter=None,
            key=self.key_slot,
            value=self.value_slot.wrapped(ChangeSerde),
            generated_name=self.name is None and stored.name is None,
        )
        parent = graph.add(between) if self.name is None else graph.add_shared(self, between)
        sources = frozenset({parent})
        return add_table(graph, node, (parent,), operation(store), slots, sources, stored, store)


def _subtract_one(_key: Any, _value: Any, count: int) -> int:
    return count - 1


def _unpacked(
    initializer: Callable[[], Any] | Aggregation[Any, Any],
    adder: Callable[[Any, Any, Any], Any] | None,
    subtractor: Callable[[Any, Any, Any], Any] | None,
    name: str | None,
) -> tuple[
    Callable[[], Any],
    Callable[[Any, Any, Any], Any],
    Callable[[Any, Any, Any], Any],
    Serde[Any] | None,
]:
    """Return the three functions, and the serde of the aggregate if they imply one.

    Raises:
        TopologyError: A function is missing, or does not accept the arguments of its call.
    """
    step = name or "aggregate"
    if isinstance(initializer, Aggregation):
        if initializer.subtractor is None:
            msg = (
                f"The aggregation of step {step!r} cannot take a value out again, as a table "
                "needs. Use one with a subtractor, or give the three functions."
            )
            raise TopologyError(msg)
        parts = initializer.initializer, initializer.aggregator, initializer.subtractor
        return *parts, initializer.serde
    if adder is None or subtractor is None:
        missing = "adder" if adder is None else "subtractor"
        msg = f"Step {step!r} has no {missing}. Give it one: `f(key, value, aggregate)`."
        raise TopologyError(msg)
    checked_arity(initializer, 0, step=step)
    checked_arity(adder, 3, step=step)
    checked_arity(subtractor, 3, step=step)
    return initializer, adder, subtractor, return_serde(initializer) or return_serde(adder)
