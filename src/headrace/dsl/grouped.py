"""KGroupedStream: records grouped by key, to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headrace.aggregators import Aggregation
from headrace.dsl.aggregation import add_aggregation, aggregate_slot, unpacked
from headrace.dsl.cogrouped import CogroupedKStream
from headrace.dsl.functions import checked_arity
from headrace.dsl.handles import Handle, key_value_store
from headrace.dsl.options import Stored, materialized_of
from headrace.dsl.window_stores import TimeLikeWindows, checked_windows
from headrace.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from headrace.processors.aggregate import Aggregate, Reduce, add_one, zero
from headrace.serdes.deduce import serde_for
from headrace.serdes.slots import SerdeSlot
from headrace.windows.session_windows import SessionWindows

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


@dataclass(frozen=True)
class KGroupedStream(Handle, Generic[K, V]):
    """Records grouped by key. Records without a key or a value are left out, and counted."""

    needs_repartition: bool = False
    """Whether the records must move to the partition of their key first."""
    name: str | None = None
    """The name of the grouping, and of its repartition."""

    def count(self, *, materialized: Stored = None, name: str | None = None) -> KTable[K, int]:
        """Count the records of each key."""
        self.burn_store_name(materialized)
        return add_aggregation(
            self,
            "KSTREAM-AGGREGATE-",
            name,
            materialized_of(materialized),
            SerdeSlot("value", serde_for(int)),
            lambda store: Aggregate(initializer=zero, aggregator=add_one, store_name=store),
            key_value_store,
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each key: ``reducer(aggregate, value)``; the first starts it."""
        checked_arity(reducer, 2, step=name or "reduce")
        return add_aggregation(
            self,
            "KSTREAM-REDUCE-",
            name,
            materialized_of(materialized),
            self.value_slot,
            lambda store: Reduce(reducer=reducer, store_name=store),
            key_value_store,
        )

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, A]: ...
    @overload
    def aggregate(
        self,
        initializer: Aggregation[V, A],
        *,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, A]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any] | Aggregation[Any, Any],
        aggregator: Callable[[Any, Any, Any], Any] | None = None,
        *,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """Fold the values of each key into an aggregate.

        Args:
            initializer: Makes the aggregate of a new key; or a ready-made aggregation of
                `headrace.aggregators`, which needs no aggregator.
            aggregator: Called as ``aggregator(key, value, aggregate)``; returns the new aggregate,
                which may be the one it was given, changed. None deletes it.
            materialized: How to store the result.
            name: Name of the step.
        """
        start, add, deduced = unpacked(initializer, aggregator, name)
        return add_aggregation(
            self,
            "KSTREAM-AGGREGATE-",
            name,
            materialized_of(materialized),
            aggregate_slot(initializer, deduced, self.value_slot),
            lambda store: Aggregate(initializer=start, aggregator=add, store_name=store),
            key_value_store,
        )

    @overload
    def windowed_by(self, windows: SessionWindows, /) -> SessionWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: TimeLikeWindows, /) -> TimeWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: TimeLikeWindows | SessionWindows, /
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Aggregate in windows: per key, and per stretch of time.

        Raises:
            TopologyError: Streams cannot be grouped by such windows.
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        return TimeWindowedKStream(self, checked_windows(windows))

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Aggregate together with other grouped streams of the same key.

        Args:
            aggregator: Called as ``aggregator(key, value, aggregate)`` with the records of this
                stream; returns the new aggregate.
        """
        checked_arity(aggregator, 3, step="cogroup")
        return CogroupedKStream(((self, aggregator),))

    def burn_store_name(self, materialized: Stored) -> None:
        """Use up the index that Kafka does for the store of a count, if it has no name."""
        if materialized is not None and materialized_of(materialized).name is None:
            self.graph.store_name("KSTREAM-AGGREGATE-")
