"""Handle, the base of streams, tables and groupings, with their serde slots and stores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace.dsl.graph import GraphBuilder
from headrace.dsl.options import Materialized
from headrace.errors import TopologyError
from headrace.serdes.base import Serde, SerdeLike
from headrace.serdes.deduce import serde_for
from headrace.serdes.slots import SerdeSlot, lost
from headrace.state.specs import StoreBuilder, StoreKind


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


def is_persistent(materialized: Materialized) -> bool | None:
    """Return whether a store is on disk; None: as `default.dsl.store` specifies."""
    return None if materialized.store_type is None else materialized.store_type == "rocksdb"
