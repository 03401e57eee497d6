"""KTable: the current value of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from headrace.dsl.functions import checked_arity, with_key
from headrace.dsl.handles import Handle, key_value_store, slot_after, slot_kept
from headrace.dsl.kstream import KStream
from headrace.dsl.options import Stored, materialized_of
from headrace.dsl.processor_step import connect_stores
from headrace.processors.api import ValueTransformerWithKey
from headrace.processors.operation import TableOperation
from headrace.processors.table_values import (
    TableFilter,
    TableMapValues,
    TableTransformValues,
    ToStream,
)
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import return_serde
from headrace.serdes.slots import SerdeSlot
from headrace.state.specs import StoreBuilder
from headrace.topology.nodes import ProcessorNode
from headrace.topology.suppliers import checked_transformer

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


@dataclass(frozen=True)
class KTable(Handle, Generic[K, V]):
    """The current value of each key. A record with the value None deletes its key.

    Every step takes ``name=``, in place of a generated name such as ``KTABLE-FILTER-0000000003``.
    """

    queryable_store_name: str | None = None
    """The name of its store, or None if it was not named."""

    def filter(
        self,
        predicate: Callable[[K, V], bool],
        *,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the entries for which ``predicate(key, value)`` is true; delete the others."""
        return self._filter(predicate, materialized, name, negated=False)

    def filter_not(
        self,
        predicate: Callable[[K, V], bool],
        *,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the entries for which ``predicate(key, value)`` is false; delete the others."""
        return self._filter(predicate, materialized, name, negated=True)

    def _filter(
        self,
        predicate: Callable[[K, V], bool],
        materialized: Stored,
        name: str | None,
        *,
        negated: bool,
    ) -> KTable[K, V]:
        self._burn_store_name(materialized, "KTABLE-FILTER-")
        node = self.graph.name("KTABLE-FILTER-", name)
        checked_arity(predicate, 2, step=node)
        sends_old = self.graph.send_old_values(self.node, materialize=False)
        store = materialized_of(materialized).name
        operation = TableFilter(
            predicate=predicate, negated=negated, store_name=store, sends_old_values=sends_old
        )
        return self._computed(node, operation, materialized, self.value_slot)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2],
        *,
        value: SerdeLike[V2] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V2],
        *,
        value: SerdeLike[V2] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[..., V2],
        *,
        value: SerdeLike[V2] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Replace each value by ``mapper(value)`` or ``mapper(key, value)``."""
        self._burn_store_name(materialized, "KTABLE-MAPVALUES-")
        node = self.graph.name("KTABLE-MAPVALUES-", name)
        operation = TableMapValues(
            mapper=with_key(mapper, 1, step=node), store_name=materialized_of(materialized).name
        )
        slot = slot_after("value", node, value, return_serde(mapper))
        return self._computed(node, operation, materialized, slot)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformerWithKey[K, V, V2]],
        *,
        stores: Iterable[str | StoreBuilder[Any]] = (),
        value: SerdeLike[V2] | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Replace each value by what a `ValueTransformerWithKey` makes of it.

        Args:
            supplier: Makes a new transformer: the class, a lambda, a partial.
            stores: Stores it uses: builders, or names of stores that were added.
            value: Type or serde of the new values.
            materialized: How to store the result.
            name: Name of the step.
        """
        node = self.graph.name("KTABLE-TRANSFORMVALUES-", name)
        own = checked_transformer(supplier, node)
        store = materialized_of(materialized).name
        operation = TableTransformValues(supplier=supplier, store_name=store)
        slot = slot_after("value", node, value)
        table: KTable[K, V2] = self._computed(node, operation, materialized, slot)
        connect_stores(table, node, (*stores, *own))
        return table

    @overload
    def to_stream(self, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(
        self,
        mapper: Callable[[K, V], K2],
        *,
        key: SerdeLike[K2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V]: ...
    def to_stream(
        self,
        mapper: Callable[[K, V], K2] | None = None,
        *,
        key: SerdeLike[Any] | None = None,
        name: str | None = None,
    ) -> KStream[Any, V]:
        """Return the changes as a stream; a deletion is a record with the value None.

        Args:
            mapper: Chooses another key for each record, as `KStream.select_key` does.
            key: Type or serde of those keys.
            name: Name of the step.
        """
        node = self.graph.name("KTABLE-TOSTREAM-", name)
        self.graph.add(ProcessorNode(name=node, parents=(self.node,), operation=ToStream()))
        stream: KStream[K, V] = KStream(
            node,
            self.graph,
            slot_kept(self.key_slot, key if mapper is None else None),
            self.value_slot,
            self.sources,
        )
        return stream if mapper is None else stream.select_key(mapper, key=key)

    def _burn_store_name(self, materialized: Stored, prefix: str) -> None:
        # Kafka uses up an index for a store without a name, although it makes none.
        if materialized is not None and materialized_of(materialized).name is None:
            self.graph.store_name(prefix)

    def _computed(
        self, node: str, operation: TableOperation, materialized: Stored, value: SerdeSlot
    ) -> KTable[K, Any]:
        """Add a table computed from this one, entry by entry."""
        stored = materialized_of(materialized)
        key_slot = slot_kept(self.key_slot, stored.key)
        value_slot = slot_kept(value, stored.value)
        if stored.name is not None:
            self.graph.add_store(key_value_store(stored.name, stored, key_slot, value_slot))
        self.graph.add(
            ProcessorNode(
                name=node,
                parents=(self.node,),
                operation=operation,
                stores=() if stored.name is None else (stored.name,),
                versioned=(
                    None if stored.name is None else stored.history_retention_ms is not None
                ),
            )
        )
        return KTable(node, self.graph, key_slot, value_slot, self.sources, stored.name)
