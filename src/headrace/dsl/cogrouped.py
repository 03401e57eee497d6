"""CogroupedKStream: several grouped streams that aggregate into one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, overload

from headrace.aggregators import A
from headrace.dsl.aggregation import checked_merger
from headrace.dsl.functions import checked_arity
from headrace.dsl.handles import (
    MakeStore,
    checked_together,
    key_value_store,
    slot_after,
    slot_kept,
)
from headrace.dsl.options import Materialized, Stored, materialized_of
from headrace.dsl.window_stores import (
    TimeLikeWindows,
    checked_windows,
    refuse_overrides,
    session_store,
    session_windowed,
    time_windowed,
    window_store,
)
from headrace.dsl.windowed import window_operation
from headrace.processors.aggregate import Aggregate
from headrace.processors.cogroup_merge import CogroupMerge
from headrace.processors.operation import Operation
from headrace.processors.session_aggregate import SessionAggregate
from headrace.records import K, V
from headrace.serdes.base import Serde, SerdeLike
from headrace.serdes.deduce import return_serde
from headrace.serdes.slots import SerdeSlot
from headrace.topology.nodes import ProcessorNode
from headrace.windows.session_windows import SessionWindows
from headrace.windows.window import Windowed

if TYPE_CHECKING:
    from headrace.dsl.grouped import KGroupedStream
    from headrace.dsl.ktable import KTable

Aggregator = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class CogroupedKStream(Generic[K, A]):
    """Grouped streams of one key type that share one aggregate per key.

    Each stream has its own aggregator. `aggregate` skips records without a key or a value, and
    counts them.
    """

    parts: tuple[tuple[KGroupedStream[K, Any], Aggregator], ...]
    """The streams and their aggregators."""
    repartitions: dict[int, str] = field(default_factory=dict, compare=False)
    """The repartitions of the streams, by the identity of their handles."""

    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]
    ) -> CogroupedKStream[K, A]:
        """Add a grouped stream, or replace the aggregator of one that is here already.

        Args:
            grouped: The stream. It must have the same key type and number of partitions.
            aggregator: Returns the new aggregate: ``aggregator(key, value, aggregate)``.

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
            >>> driver.create_input_topic("orders").pipe_input("Graz", 27)
            Graz 27
            >>> driver.create_input_topic("refunds").pipe_input("Graz", 3)
            Graz 24
        """
        checked_arity(aggregator, 3, step="cogroup")
        checked_together(self.parts[0][0], grouped, step="cogroup")
        if any(known is grouped for known, _ in self.parts):
            parts = tuple(
                (known, aggregator if known is grouped else former) for known, former in self.parts
            )
        else:
            parts = (*self.parts, (grouped, aggregator))
        return CogroupedKStream(parts, self.repartitions)

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        value: SerdeLike[A] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Fold the records of all streams into one aggregate per key.

        Args:
            initializer: Returns the aggregate of a new key.
            value: Type or serde of the aggregates, if the functions do not state it.
            materialized: How to store the result.
            name: Name of the step; its nodes are ``name-cogroup-agg-0`` and so on, and
                ``name-cogroup-merge``.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> grouped = builder.stream("orders", key=str, value=int).group_by_key()
            >>> totals = grouped.cogroup(lambda city, amount, total: total + amount)
            >>> totals.aggregate(int, materialized="totals").to_stream().foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Graz", 3)])
            Graz 27
            Graz 30
        """
        return self.add(
            initializer,
            value,
            materialized_of(materialized),
            name,
            lambda store, aggregator: Aggregate(
                initializer=initializer, aggregator=aggregator, store_name=store
            ),
            key_value_store,
        )

    @overload
    def windowed_by(self, windows: SessionWindows, /) -> SessionWindowedCogroupedKStream[K, A]: ...
    @overload
    def windowed_by(self, windows: TimeLikeWindows, /) -> TimeWindowedCogroupedKStream[K, A]: ...
    def windowed_by(
        self, windows: TimeLikeWindows | SessionWindows, /
    ) -> TimeWindowedCogroupedKStream[K, A] | SessionWindowedCogroupedKStream[K, A]:
        """Aggregate per key and window.

        Example:
            >>> from headrace import StreamsBuilder, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> grouped = builder.stream("orders", key=str, value=int).group_by_key()
            >>> totals = grouped.cogroup(lambda city, amount, total: total + amount)
            >>> totals.windowed_by(TimeWindows("10s")).aggregate(int).to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=5_000, advance="5s")
            [Graz@0/10000] 27
            [Graz@10000/20000] 3
        """
        if isinstance(windows, SessionWindows):
            refuse_overrides(windows)
            return SessionWindowedCogroupedKStream(self, windows)
        return TimeWindowedCogroupedKStream(self, checked_windows(windows))

    def add(
        self,
        initializer: Callable[[], Any],
        value: SerdeLike[Any] | None,
        stored: Materialized,
        name: str | None,
        operation: Callable[[str, Aggregator], Operation],
        make_store: MakeStore,
        *,
        table_key: Callable[[SerdeSlot], SerdeSlot] = lambda key: key,
        grace_ms: int | None = None,
    ) -> KTable[Any, Any]:
        """Add the aggregation of each stream and the step that merges them.

        ``operation(store, aggregator)`` returns the operation of a stream. The other arguments are
        those of `add_aggregation`.
        """
        from headrace.dsl.ktable import KTable  # each needs the other's class

        checked_arity(initializer, 0, step=name or "aggregate")
        first = self.parts[0][0]
        graph = first.graph
        store = stored.name or graph.store_name("COGROUPKSTREAM-AGGREGATE-")
        parents = self._parents(store, generated_name=stored.name is None)
        nodes = [
            graph.suffixed("COGROUPKSTREAM-AGGREGATE-", name, f"-cogroup-agg-{index}")
            for index in range(len(self.parts))
        ]
        merge = graph.suffixed("COGROUPKSTREAM-MERGE-", name, "-cogroup-merge")
        key_slot = slot_kept(first.key_slot, stored.key)
        aggregates = slot_after("value", merge, value, self._deduced(initializer))
        value_slot = slot_kept(aggregates, stored.value)
        graph.add_store(make_store(store, stored, key_slot, value_slot))
        for node, parent, (_, aggregator) in zip(nodes, parents, self.parts, strict=True):
            graph.add(
                ProcessorNode(
                    name=node,
                    parents=(parent,),
                    operation=operation(store, aggregator),
                    stores=(store,),
                    versioned=stored.history_retention_ms is not None,
                    grace_ms=grace_ms,
                )
            )
        graph.add(ProcessorNode(name=merge, parents=tuple(nodes), operation=CogroupMerge()))
        sources = frozenset().union(*(self._sources(grouped) for grouped, _ in self.parts))
        return KTable(merge, graph, table_key(key_slot), value_slot, sources, stored.name)

    def _parents(self, store: str, *, generated_name: bool) -> list[str]:
        """Return the node before the aggregation of each stream; add repartitions where needed."""
        graph = self.parts[0][0].graph
        for grouped, _ in self.parts:
            if not grouped.needs_repartition:
                continue
            between = graph.repartition(
                grouped.node,
                grouped.name or store,
                grouped.key_slot,
                grouped.value_slot,
                generated_name=grouped.name is None and generated_name,
            )
            if id(grouped) not in self.repartitions:
                self.repartitions[id(grouped)] = graph.add(between)
        graph.copartition({source for grouped, _ in self.parts for source in grouped.sources})
        return [self.repartitions.get(id(grouped), grouped.node) for grouped, _ in self.parts]

    def _sources(self, grouped: KGroupedStream[K, Any]) -> frozenset[str]:
        between = self.repartitions.get(id(grouped))
        return grouped.sources if between is None else frozenset({between})

    def _deduced(self, initializer: Callable[[], Any]) -> Serde[Any] | None:
        functions: list[Callable[..., Any]] = [initializer, *(f for _, f in self.parts)]
        serdes = (return_serde(function) for function in functions)
        return next((serde for serde in serdes if serde is not None), None)


@dataclass(frozen=True)
class TimeWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams in windows of one size. Each stream has its own stream time."""

    cogrouped: CogroupedKStream[K, A]
    """The streams and their aggregators."""
    windows: TimeLikeWindows
    """The windows of their records."""

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        value: SerdeLike[A] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Fold the records of all streams into one aggregate per key and window.

        Args:
            initializer: Returns the aggregate of a new window.
            value: Type or serde of the aggregates, if the functions do not state it.
            materialized: How to store the result.
            name: Name of the step, as for `CogroupedKStream.aggregate`.

        Example:
            >>> from headrace import StreamsBuilder, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> grouped = builder.stream("orders", key=str, value=int).group_by_key()
            >>> totals = grouped.cogroup(lambda city, amount, total: total + amount)
            >>> totals.windowed_by(TimeWindows("10s")).aggregate(int).to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            [Graz@0/10000] 27
            [Graz@0/10000] 30
        """
        windows = self.windows
        return self.cogrouped.add(
            initializer,
            value,
            materialized_of(materialized),
            name,
            lambda store, aggregator: window_operation(windows, store, initializer, aggregator),
            window_store(windows),
            table_key=time_windowed(windows),
            grace_ms=windows.grace_ms,
        )


@dataclass(frozen=True)
class SessionWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams in sessions. Each stream has its own stream time."""

    cogrouped: CogroupedKStream[K, A]
    """The streams and their aggregators."""
    windows: SessionWindows
    """How far apart the records of one session may be."""

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A],
        *,
        value: SerdeLike[A] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Fold the records of all streams into one aggregate per key and session.

        Args:
            initializer: Returns the aggregate that each record starts with.
            merger: Returns two aggregates as one: ``merger(key, aggregate, other)``. It runs for
                each session within the gap of a record.
            value: Type or serde of the aggregates, if the functions do not state it.
            materialized: How to store the result.
            name: Name of the step, as for `CogroupedKStream.aggregate`.

        Example:
            >>> from headrace import SessionWindows, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> grouped = builder.stream("orders", key=str, value=int).group_by_key()
            >>> totals = grouped.cogroup(lambda city, amount, total: total + amount)
            >>> sessions = totals.windowed_by(SessionWindows("10s"))
            >>> table = sessions.aggregate(int, lambda city, one, other: one + other)
            >>> table.to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            [Graz@0/0] 27
            [Graz@0/0] None
            [Graz@0/5000] 30
        """
        windows, merge = self.windows, checked_merger(initializer, merger, name)
        return self.cogrouped.add(
            initializer,
            value,
            materialized_of(materialized),
            name,
            lambda store, aggregator: SessionAggregate(
                windows=windows,
                initializer=initializer,
                aggregator=aggregator,
                merger=merge,
                store_name=store,
            ),
            session_store(windows),
            table_key=session_windowed,
            grace_ms=windows.retention_ms,
        )
