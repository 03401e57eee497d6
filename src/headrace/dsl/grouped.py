"""KGroupedStream: records grouped by key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from headrace.aggregators import A, Aggregation
from headrace.dsl.aggregation import add_aggregation, aggregate_slot, unpacked
from headrace.dsl.cogrouped import CogroupedKStream
from headrace.dsl.functions import checked_arity
from headrace.dsl.handles import Handle, key_value_store
from headrace.dsl.options import Stored, TableKeywords, materialized_of
from headrace.dsl.window_stores import TimeLikeWindows, checked_windows, refuse_overrides
from headrace.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from headrace.processors.aggregate import Aggregate, add_one, nothing, reducing, zero
from headrace.records import K, V
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import serde_for
from headrace.serdes.slots import SerdeSlot
from headrace.windows.session_windows import SessionWindows

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable


@dataclass(frozen=True)
class KGroupedStream(Handle, Generic[K, V]):
    """Records grouped by key.

    Its aggregations skip records without a key or a value, and count them.
    """

    needs_repartition: bool = False
    """Whether the records must move to the partition of their key first."""
    name: str | None = None
    """The name of the grouping, and of its repartition."""

    def count(self, *, materialized: Stored = None, name: str | None = None) -> KTable[K, int]:
        """Count the records of each key.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.group_by_key().count(materialized="counts").to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Graz", 3)])
            Graz 1
            Graz 2
        """
        self.burn_store_name(materialized)
        slot = SerdeSlot("value", serde_for(int))
        return self._aggregated("KSTREAM-AGGREGATE-", slot, zero, add_one, materialized, name)

    def reduce(
        self, reducer: Callable[[V, V], V], *, materialized: Stored = None, name: str | None = None
    ) -> KTable[K, V]:
        """Combine the values of each key by ``reducer(aggregate, value)``.

        The first value of a key is its first aggregate.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.group_by_key().reduce(max).to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Graz", 3)])
            Graz 27
            Graz 27
        """
        checked_arity(reducer, 2, step=name or "reduce")
        add, slot = reducing(reducer), self.value_slot
        return self._aggregated("KSTREAM-REDUCE-", slot, nothing, add, materialized, name, reducer)

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        **options: Unpack[TableKeywords[A]],
    ) -> KTable[K, A]: ...
    @overload
    def aggregate(
        self, initializer: Aggregation[V, A], **options: Unpack[TableKeywords[A]]
    ) -> KTable[K, A]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        aggregator: Callable[[Any, Any, Any], Any] | None = None,
        *,
        value: SerdeLike[Any] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Fold the values of each key into an aggregate.

        Args:
            initializer: Returns the aggregate of a new key; or a ready-made aggregation of
                `headrace.aggregators`, which needs no aggregator.
            aggregator: Returns the new aggregate: ``aggregator(key, value, aggregate)``. It may
                change its argument and return that. None deletes the aggregate.
            value: Type or serde of the aggregates, if the functions do not state it.
            materialized: How to store the result.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int).group_by_key()
            >>> totals = orders.aggregate(int, lambda city, amount, total: total + amount)
            >>> totals.to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Graz", 3)])
            Graz 27
            Graz 30
        """
        start, add, deduced = unpacked(initializer, aggregator, name)
        slot = aggregate_slot(value, initializer, deduced, self.value_slot)
        return self._aggregated("KSTREAM-AGGREGATE-", slot, start, add, materialized, name)

    def _aggregated(
        self,
        prefix: str,
        value: SerdeSlot | Callable[[str], SerdeSlot],
        start: Callable[[], Any],
        add: Callable[[Any, Any, Any], Any],
        materialized: Stored,
        name: str | None,
        reducer: Callable[[Any, Any], Any] | None = None,
    ) -> KTable[K, Any]:
        def operation(store: str) -> Aggregate:
            return Aggregate(initializer=start, aggregator=add, reducer=reducer, store_name=store)

        stored = materialized_of(materialized)
        return add_aggregation(self, prefix, name, stored, value, operation, key_value_store)

    @overload
    def windowed_by(self, windows: SessionWindows, /) -> SessionWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: TimeLikeWindows, /) -> TimeWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: TimeLikeWindows | SessionWindows, /
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Aggregate per key and window.

        Raises:
            TopologyError: A grouped stream cannot have such windows.

        Example:
            >>> from headrace import StreamsBuilder, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> per_window = orders.group_by_key().windowed_by(TimeWindows("10s"))
            >>> per_window.count().to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=5_000, advance="5s")
            [Graz@0/10000] 1
            [Graz@10000/20000] 1
        """
        if isinstance(windows, SessionWindows):
            refuse_overrides(windows)
            return SessionWindowedKStream(self, windows)
        return TimeWindowedKStream(self, checked_windows(windows))

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Aggregate together with other grouped streams of the same key.

        Args:
            aggregator: Returns the new aggregate for a record of this stream:
                ``aggregator(key, value, aggregate)``.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int).group_by_key()
            >>> refunds = builder.stream("refunds", key=str, value=int).group_by_key()
            >>> both = orders.cogroup(lambda city, amount, total: total + amount)
            >>> both = both.cogroup(refunds, lambda city, amount, total: total - amount)
            >>> both.aggregate(int).to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("refunds").pipe_input("Graz", 3)
            Graz -3
        """
        checked_arity(aggregator, 3, step="cogroup")
        return CogroupedKStream(((self, aggregator),))

    def burn_store_name(self, materialized: Stored) -> None:
        """Use up the index that Kafka uses up for the store of a count without a name."""
        if materialized is not None and materialized_of(materialized).name is None:
            self.graph.store_name("KSTREAM-AGGREGATE-")
