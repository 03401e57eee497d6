"""Handle, the base of streams, tables and groupings, with their serde slots and stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.dsl.graph import GraphBuilder
from headrace.dsl.options import Materialized
from headrace.errors import TopologyError
from headrace.processors.operation import TableOperation
from headrace.serdes.base import Serde, SerdeLike
from headrace.serdes.deduce import serde_for
from headrace.serdes.slots import SerdeSlot, lost
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.base import StoreKind
from headrace.topology.nodes import ProcessorNode

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable

MakeStore: TypeAlias = Callable[[str, Materialized, SerdeSlot, SerdeSlot], StoreBuilder[Any]]
"""Returns a store: ``f(name, options, key slot, value slot)``."""


@dataclass(frozen=True)
class Handle:
    """A node of the graph, and the serdes and sources of the records that leave it."""

    node: str
    graph: GraphBuilder
    key_slot: SerdeSlot
    value_slot: SerdeSlot
    sources: frozenset[str]
    """The sources of its records; a join requires them to be co-partitioned."""


def slot_after(
    part: Any, step: str, explicit: SerdeLike[Any] | None, deduced: Serde[Any] | None = None
) -> SerdeSlot:
    """Return the slot after a step that may change the type: explicit, deduced, or lost."""
    if explicit is not None:
        return SerdeSlot(part, serde_for(explicit))
    return lost(part, step) if deduced is None else SerdeSlot(part, deduced)


def checked_together(one: Handle, other: Handle, *, step: str) -> None:
    """Check that two handles belong to one program.

    Raises:
        TopologyError: They belong to different builders.
    """
    if one.graph is not other.graph:
        msg = (
            f"Step {step!r} brings together {one.node!r} and {other.node!r}, which were made by "
            "different builders. Make both with one `StreamsBuilder`."
        )
        raise TopologyError(msg)


def slot_kept(slot: SerdeSlot, explicit: SerdeLike[Any] | None) -> SerdeSlot:
    """Return the slot after a step that cannot change the type: the explicit one, else ``slot``."""
    return slot if explicit is None else SerdeSlot(slot.part, serde_for(explicit))


def key_value_store(
    name: str, materialized: Materialized, key: SerdeSlot, value: SerdeSlot
) -> StoreBuilder[Any]:
    """Return the key-value store of a table: timestamped, or versioned if it has a history."""
    kind: StoreKind = "timestamped_key_value"
    if materialized.retention_ms is not None:
        msg = (
            f"Store {name!r} was given `retention=`, which is for windows and sessions. "
            "Use `history_retention=` for a versioned table."
        )
        raise TopologyError(msg)
    store: StoreBuilder[Any] = StoreBuilder(
        name=name,
        kind=kind,
        key=key,
        value=value,
        persistent=is_persistent(materialized),
        caching=materialized.caching,
        logging=materialized.logging,
        generated_name=materialized.name is None,
    )
    if materialized.history_retention_ms is None:
        return store
    return replace(
        store,
        kind="versioned_key_value",
        persistent=True,
        caching=False,
        retention_ms=materialized.history_retention_ms,
    )


def add_table(
    graph: GraphBuilder,
    node: str,
    parents: tuple[str, ...],
    operation: TableOperation,
    slots: tuple[SerdeSlot, SerdeSlot],
    sources: frozenset[str],
    stored: Materialized,
    store: str | None,
    *,
    make_store: MakeStore = key_value_store,
    table_key: Callable[[SerdeSlot], SerdeSlot] = lambda key: key,
    grace_ms: int | None = None,
) -> KTable[Any, Any]:
    """Add the node of a table, and its store unless that is None; return the table.

    ``slots`` are those of the store's keys and values, which ``stored`` may replace.
    ``table_key(key)`` returns the slot of the table's keys. ``grace_ms`` is None without windows.
    """
    from headrace.dsl.ktable import KTable  # each needs the other's class

    key, value = slot_kept(slots[0], stored.key), slot_kept(slots[1], stored.value)
    if store is not None:
        graph.add_store(make_store(store, stored, key, value))
    graph.add(
        ProcessorNode(
            name=node,
            parents=parents,
            operation=operation,
            stores=() if operation.store_name is None else (operation.store_name,),
            versioned=stored.history_retention_ms is not None,
            grace_ms=grace_ms,
        )
    )
    return KTable(node, graph, table_key(key), value, sources, stored.name)


def is_persistent(materialized: Materialized) -> bool | None:
    """Return whether a store is on disk; None: as `default.dsl.store` specifies."""
    return None if materialized.store_type is None else materialized.store_type == "rocksdb"
