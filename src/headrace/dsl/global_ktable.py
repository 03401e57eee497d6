"""GlobalKTable: a table that every task has as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.dsl.graph import GraphBuilder
from headrace.serdes.slots import SerdeSlot

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class GlobalKTable(Generic[K, V]):
    """A table that every task has as a whole; streams join it by any key."""

    store: str
    graph: GraphBuilder
    key_slot: SerdeSlot
    value_slot: SerdeSlot
    queryable_store_name: str | None
    """The name of its store, or None if it was not named."""
