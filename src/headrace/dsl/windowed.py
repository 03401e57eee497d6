"""TimeWindowedKStream and SessionWindowedKStream: grouped records in windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, Unpack, overload

from headrace.aggregators import A, Aggregation
from headrace.dsl.aggregation import add_aggregation, aggregate_slot, checked_merger, unpacked
from headrace.dsl.functions import checked_arity
from headrace.dsl.options import EmitStrategy, Stored, TableKeywords, materialized_of
from headrace.dsl.window_stores import (
    TimeLikeWindows,
    session_store,
    session_windowed,
    time_windowed,
    window_store,
)
from headrace.errors import TopologyError
from headrace.processors.aggregate import add_counts, add_one, merging, nothing, reducing, zero
from headrace.processors.operation import TableOperation
from headrace.processors.session_aggregate import SessionAggregate
from headrace.processors.sliding_aggregate import SlidingAggregate
from headrace.processors.window_aggregate import WindowAggregate
from headrace.records import K, V
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import serde_for
from headrace.serdes.slots import SerdeSlot
from headrace.windows.session_windows import SessionWindows
from headrace.windows.sliding_windows import SlidingWindows
from headrace.windows.unlimited_windows import UnlimitedWindows
from headrace.windows.window import Windowed

if TYPE_CHECKING:
    from headrace.dsl.grouped import KGroupedStream
    from headrace.dsl.ktable import KTable

ValueSlot: TypeAlias = SerdeSlot | Callable[[str], SerdeSlot]

_COUNTS = SerdeSlot("value", serde_for(int))


def window_operation(
    windows: TimeLikeWindows,
    store: str,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    *,
    on_close: bool = False,
) -> TableOperation:
    """Return the operation that aggregates in windows of this kind."""
    is_sliding = isinstance(windows, SlidingWindows)
    operation: type[Any] = SlidingAggregate if is_sliding else WindowAggregate
    return operation(  # type: ignore[no-any-return]  # either class
        windows=windows,
        initializer=initializer,
        aggregator=aggregator,
        on_close=on_close,
        store_name=store,
    )


@dataclass(frozen=True)
class TimeWindowedKStream(Generic[K, V]):
    """Grouped records in windows of one size. A record is in each window that contains its time.

    A window that has closed skips late records, and counts them.
    """

    grouped: KGroupedStream[K, V]
    """The records."""
    windows: TimeLikeWindows
    """The windows of the records."""
    on_close: bool = False
    """Whether a window emits once, when it closes."""

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Choose whether a window emits each update, or its result once when it closes.

        Raises:
            TopologyError: The windows never close.

        Example:
            >>> from headrace import EmitStrategy, StreamsBuilder, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> windows = orders.group_by_key().windowed_by(TimeWindows("10s"))
            >>> closed = windows.emit_strategy(EmitStrategy.on_window_close())
            >>> closed.count().to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            >>> topic.pipe_input("Linz", 9, timestamp=10_000)
            [Graz@0/10000] 2
        """
        if strategy.on_close and isinstance(self.windows, UnlimitedWindows):
            msg = (
                f"{self.windows} never close, so `EmitStrategy.on_window_close()` would emit "
                "nothing. Use other windows, or emit updates."
            )
            raise TopologyError(msg)
        return replace(self, on_close=strategy.on_close)

    def count(
        self, *, materialized: Stored = None, name: str | None = None
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and window.

        Example:
            >>> from headrace import StreamsBuilder, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> windows = orders.group_by_key().windowed_by(TimeWindows("10s"))
            >>> windows.count(materialized="counts").to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            [Graz@0/10000] 1
            [Graz@0/10000] 2
        """
        if not isinstance(self.windows, SlidingWindows):
            self.grouped.burn_store_name(materialized)
        return self._aggregated("KSTREAM-AGGREGATE-", _COUNTS, zero, add_one, materialized, name)

    def reduce(
        self, reducer: Callable[[V, V], V], *, materialized: Stored = None, name: str | None = None
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and window; the first value is the first aggregate.

        Args:
            reducer: Returns the new aggregate: ``reducer(aggregate, value)``. None deletes it.
            materialized: How to store the result.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> windows = orders.group_by_key().windowed_by(TimeWindows("10s"))
            >>> windows.reduce(min).to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            [Graz@0/10000] 27
            [Graz@0/10000] 3
        """
        checked_arity(reducer, 2, step=name or "reduce")
        slot = self.grouped.value_slot
        aggregator = reducing(reducer)
        return self._aggregated("KSTREAM-REDUCE-", slot, nothing, aggregator, materialized, name)

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        **options: Unpack[TableKeywords[A]],
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self, initializer: Aggregation[V, A], **options: Unpack[TableKeywords[A]]
    ) -> KTable[Windowed[K], A]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        aggregator: Callable[[Any, Any, Any], Any] | None = None,
        *,
        value: SerdeLike[Any] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], Any]:
        """Fold the values of each key and window into an aggregate.

        Args:
            initializer: Returns the aggregate of a new window; or a ready-made aggregation of
                `headrace.aggregators`, which needs no aggregator.
            aggregator: Returns the new aggregate: ``aggregator(key, value, aggregate)``. It may
                change its argument and return that. None deletes the aggregate. As in Kafka, it
                also runs for values that are None, except in sliding windows.
            value: Type or serde of the aggregates, if the functions do not state it.
            materialized: How to store the result.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> windows = orders.group_by_key().windowed_by(TimeWindows("10s"))
            >>> totals = windows.aggregate(int, lambda city, amount, total: total + amount)
            >>> totals.to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            [Graz@0/10000] 27
            [Graz@0/10000] 30
        """
        start, add, deduced = unpacked(initializer, aggregator, name)
        return self._aggregated(
            "KSTREAM-AGGREGATE-",
            aggregate_slot(value, initializer, deduced, self.grouped.value_slot),
            start,
            add,
            materialized,
            name,
        )

    def _aggregated(
        self,
        prefix: str,
        value: ValueSlot,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        materialized: Stored,
        name: str | None,
    ) -> KTable[Windowed[K], Any]:
        windows, on_close = self.windows, self.on_close
        return add_aggregation(
            self.grouped,
            prefix,
            name,
            materialized_of(materialized),
            value,
            lambda store: window_operation(
                windows, store, initializer, aggregator, on_close=on_close
            ),
            window_store(windows, on_close=on_close),
            table_key=time_windowed(windows),
            grace_ms=windows.grace_ms,
        )


@dataclass(frozen=True)
class SessionWindowedKStream(Generic[K, V]):
    """Grouped records in sessions: periods of activity with a gap between them.

    A record merges all sessions within its gap into one; the table deletes the old ones.
    """

    grouped: KGroupedStream[K, V]
    """The records."""
    windows: SessionWindows
    """How far apart the records of one session may be."""
    on_close: bool = False
    """Whether a session emits once, when it closes."""

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Choose whether a session emits each update, or its result once when it closes.

        Example:
            >>> from headrace import EmitStrategy, SessionWindows, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> sessions = orders.group_by_key().windowed_by(SessionWindows("10s"))
            >>> closed = sessions.emit_strategy(EmitStrategy.on_window_close())
            >>> closed.count().to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            >>> topic.pipe_input("Linz", 9, timestamp=15_001)
            [Graz@0/5000] 2
        """
        return replace(self, on_close=strategy.on_close)

    def count(
        self, *, materialized: Stored = None, name: str | None = None
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and session.

        Example:
            >>> from headrace import SessionWindows, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> sessions = orders.group_by_key().windowed_by(SessionWindows("10s"))
            >>> sessions.count().to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            [Graz@0/0] 1
            [Graz@0/0] None
            [Graz@0/5000] 2
        """
        self.grouped.burn_store_name(materialized)
        functions = (zero, add_one, add_counts)
        return self._aggregated("KSTREAM-AGGREGATE-", _COUNTS, functions, materialized, name)

    def reduce(
        self, reducer: Callable[[V, V], V], *, materialized: Stored = None, name: str | None = None
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and session; the first value is the first aggregate.

        Args:
            reducer: Returns the new aggregate: ``reducer(aggregate, value)``, and
                ``reducer(aggregate, other)`` where sessions merge. None deletes it.
            materialized: How to store the result.
            name: Name of the step.

        Example:
            >>> from headrace import SessionWindows, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> sessions = orders.group_by_key().windowed_by(SessionWindows("10s"))
            >>> sessions.reduce(min).to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            [Graz@0/0] 27
            [Graz@0/0] None
            [Graz@0/5000] 3
        """
        checked_arity(reducer, 2, step=name or "reduce")
        slot = self.grouped.value_slot
        functions = (nothing, reducing(reducer), merging(reducer))
        return self._aggregated("KSTREAM-REDUCE-", slot, functions, materialized, name)

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        **options: Unpack[TableKeywords[A]],
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self, initializer: Aggregation[V, A], **options: Unpack[TableKeywords[A]]
    ) -> KTable[Windowed[K], A]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        aggregator: Callable[[Any, Any, Any], Any] | None = None,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        *,
        value: SerdeLike[Any] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], Any]:
        """Fold the values of each key and session into an aggregate.

        Args:
            initializer: Returns the aggregate that each record starts with; or a ready-made
                aggregation of `headrace.aggregators` that can also merge.
            aggregator: Returns the new aggregate: ``aggregator(key, value, aggregate)``. It may
                change its argument and return that. None deletes the aggregate.
            merger: Returns two aggregates as one: ``merger(key, aggregate, other)``. It runs for
                each session within the gap of a record, before the aggregator.
            value: Type or serde of the aggregates, if the functions do not state it.
            materialized: How to store the result.
            name: Name of the step.

        Example:
            >>> from headrace import SessionWindows, StreamsBuilder, aggregators
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> sessions = orders.group_by_key().windowed_by(SessionWindows("10s"))
            >>> sessions.aggregate(aggregators.sum()).to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            [Graz@0/0] 27
            [Graz@0/0] None
            [Graz@0/5000] 30
        """
        start, add, deduced = unpacked(initializer, aggregator, name)
        merge = checked_merger(initializer, merger, name)
        return self._aggregated(
            "KSTREAM-AGGREGATE-",
            aggregate_slot(value, initializer, deduced, self.grouped.value_slot),
            (start, add, merge),
            materialized,
            name,
        )

    def _aggregated(
        self,
        prefix: str,
        value: ValueSlot,
        functions: tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]],
        materialized: Stored,
        name: str | None,
    ) -> KTable[Windowed[K], Any]:
        windows, on_close = self.windows, self.on_close
        initializer, aggregator, merger = functions
        return add_aggregation(
            self.grouped,
            prefix,
            name,
            materialized_of(materialized),
            value,
            lambda store: SessionAggregate(
                windows=windows,
                initializer=initializer,
                aggregator=aggregator,
                merger=merger,
                on_close=on_close,
                store_name=store,
            ),
            session_store(windows, on_close=on_close),
            table_key=session_windowed,
            grace_ms=windows.retention_ms,
        )
