"""KGroupedStream: records grouped by key, to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headrace.aggregators import Aggregation
from headrace.dsl.aggregation import add_aggregation
from headrace.dsl.functions import checked_arity
from headrace.dsl.handles import Handle, key_value_store, slot_after
from headrace.dsl.options import Stored, materialized_of
from headrace.errors import TopologyError
from headrace.processors.aggregate import Aggregate, Reduce, add_one, zero
from headrace.serdes.base import Serde
from headrace.serdes.deduce import return_serde, serde_for
from headrace.serdes.slots import SerdeSlot

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
        stored = materialized_of(materialized)
        if materialized is not None and stored.name is None:
            # Kafka uses up an index here that it then does not use.
            self.graph.store_name("KSTREAM-AGGREGATE-")
        return add_aggregation(
            self,
            "KSTREAM-AGGREGATE-",
            name,
            stored,
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
        initializer, aggregator, deduced = unpacked(initializer, aggregator, name)
        return add_aggregation(
            self,
            "KSTREAM-AGGREGATE-",
            name,
            materialized_of(materialized),
            lambda node: slot_after("value", node, None, deduced),
            lambda store: Aggregate(
                initializer=initializer, aggregator=aggregator, store_name=store
            ),
            key_value_store,
        )


def unpacked(
    initializer: Callable[[], Any] | Aggregation[Any, Any],
    aggregator: Callable[[Any, Any, Any], Any] | None,
    name: str | None,
) -> tuple[Callable[[], Any], Callable[[Any, Any, Any], Any], Serde[Any] | None]:
    """Return initializer and aggregator, and the serde of the aggregate if they say it.

    Raises:
        TopologyError: One of them is missing, or cannot be called as it is.
    """
    step = name or "aggregate"
    if isinstance(initializer, Aggregation):
        return initializer.initializer, initializer.aggregator, initializer.serde
    if aggregator is None:
        msg = f"Step {step!r} has no aggregator. Give it one: `f(key, value, aggregate)`."
        raise TopologyError(msg)
    checked_arity(initializer, 0, step=step)
    checked_arity(aggregator, 3, step=step)
    return initializer, aggregator, return_serde(initializer) or return_serde(aggregator)
