"""GlobalKTable: a table of which every task has all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from headrace.dsl.graph import GraphBuilder
from headrace.records import K, V
from headrace.serdes.slots import SerdeSlot


@dataclass(frozen=True)
class GlobalKTable(Generic[K, V]):
    """A table of which every task has all rows; a stream joins it by any key."""

    store: str
    graph: GraphBuilder
    key_slot: SerdeSlot
    value_slot: SerdeSlot
    queryable_store_name: str | None
    """The name that ``materialized=`` gives its store, or None."""
