"""Adds an aggregation: its repartition, its store and its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.aggregators import Aggregation
from headrace.dsl.functions import checked_arity
from headrace.dsl.handles import MakeStore, add_table, slot_after
from headrace.dsl.options import Materialized
from headrace.errors import TopologyError
from headrace.processors.operation import TableOperation
from headrace.serdes.base import Serde, SerdeLike
from headrace.serdes.deduce import return_serde
from headrace.serdes.slots import SerdeSlot

if TYPE_CHECKING:
    from headrace.dsl.grouped import KGroupedStream
    from headrace.dsl.ktable import KTable


def add_aggregation(
    grouped: KGroupedStream[Any, Any],
    prefix: str,
    name: str | None,
    stored: Materialized,
    value: SerdeSlot | Callable[[str], SerdeSlot],
    operation: Callable[[str], TableOperation],
    make_store: MakeStore,
    *,
    table_key: Callable[[SerdeSlot], SerdeSlot] = lambda key: key,
    grace_ms: int | None = None,
) -> KTable[Any, Any]:
    """Add an aggregation of grouped records and return its table.

    ``value(step)`` returns the slot of the aggregates, and ``operation(store)`` the operation. The
    other arguments are those of `add_table`.
    """
    graph = grouped.graph
    store = stored.name or graph.store_name(prefix)
    node = graph.name(prefix, name)
    slots = grouped.key_slot, value if isinstance(value, SerdeSlot) else value(node)
    parent, sources = repartitioned(grouped, store, generated_name=stored.name is None)
    return add_table(
        graph,
        node,
        (parent,),
        operation(store),
        slots,
        sources,
        stored,
        store,
        make_store=make_store,
        table_key=table_key,
        grace_ms=grace_ms,
    )


def repartitioned(
    grouped: KGroupedStream[Any, Any], store: str, *, generated_name: bool
) -> tuple[str, frozenset[str]]:
    """Return the node before the aggregation, and the sources of its records.

    All aggregations of a grouping with a name share one repartition.
    """
    if not grouped.needs_repartition:
        return grouped.node, grouped.sources
    graph = grouped.graph
    prefix = grouped.name or store
    between = graph.repartition(
        grouped.node,
        prefix,
        grouped.key_slot,
        grouped.value_slot,
        generated_name=grouped.name is None and generated_name,
    )
    source = graph.add(between) if grouped.name is None else graph.add_shared(grouped, between)
    return source, frozenset({source})


def aggregate_slot(
    value: SerdeLike[Any] | None,
    initializer: Callable[[], Any] | Aggregation[Any, Any],
    deduced: Serde[Any] | None,
    values: SerdeSlot,
) -> Callable[[str], SerdeSlot]:
    """Return a function that returns the slot of an aggregate: ``f(step)``.

    An explicit ``value`` wins over the ``deduced`` serde. ``values`` is the slot of the aggregated
    values, because some aggregates contain values.
    """
    if value is None and isinstance(initializer, Aggregation) and initializer.serde_from:
        slot = values.wrapped(initializer.serde_from)
        return lambda _step: slot
    return lambda step: slot_after("value", step, value, deduced)


def unpacked(
    initializer: Callable[[], Any] | Aggregation[Any, Any],
    aggregator: Callable[[Any, Any, Any], Any] | None,
    name: str | None,
) -> tuple[Callable[[], Any], Callable[[Any, Any, Any], Any], Serde[Any] | None]:
    """Return initializer and aggregator, and the serde of the aggregate if they imply one.

    Raises:
        TopologyError: A function is missing, or does not accept the arguments of its call.
    """
    step = name or "aggregate"
    if isinstance(initializer, Aggregation):
        if aggregator is not None:
            msg = (
                f"Step {step!r} was given an aggregator besides a ready-made aggregation. "
                "Leave out one of them."
            )
            raise TopologyError(msg)
        return initializer.initializer, initializer.aggregator, initializer.serde
    if aggregator is None:
        msg = f"Step {step!r} has no aggregator. Give it one: `f(key, value, aggregate)`."
        raise TopologyError(msg)
    checked_arity(initializer, 0, step=step)
    checked_arity(aggregator, 3, step=step)
    return initializer, aggregator, return_serde(initializer) or return_serde(aggregator)


def checked_merger(
    initializer: Callable[[], Any] | Aggregation[Any, Any],
    merger: Callable[[Any, Any, Any], Any] | None,
    name: str | None,
) -> Callable[[Any, Any, Any], Any]:
    """Return the function that merges two sessions.

    Raises:
        TopologyError: It is missing, or does not accept three arguments.
    """
    step = name or "aggregate"
    if isinstance(initializer, Aggregation) and merger is None:
        if initializer.merger is None:
            msg = (
                f"The aggregation of step {step!r} cannot merge two aggregates, as sessions need. "
                "Use one with a merger, or give the three functions."
            )
            raise TopologyError(msg)
        return initializer.merger
    if merger is None:
        msg = f"Step {step!r} has no merger. Give it one: `f(key, aggregate, other)`."
        raise TopologyError(msg)
    checked_arity(merger, 3, step=step)
    return merger
