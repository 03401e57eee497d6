"""GraphBuilder: the topology while a program adds to it. Nothing else in `dsl` is mutable."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import TopologyError
from headrace.processors.operation import TableOperation
from headrace.serdes.slots import SerdeSlot
from headrace.state.names import checked_name
from headrace.state.specs import StoreBuilder
from headrace.topology.graph import StreamJoin, TopologyGraph
from headrace.topology.naming import (
    REPARTITION_SUFFIX,
    STORE_INFIX,
    is_generated_stream_name,
    numbered,
)
from headrace.topology.nodes import (
    GlobalStoreNode,
    Node,
    Partitioner,
    ProcessorNode,
    RepartitionNode,
)

N = TypeVar("N", bound=Node)

_PACKAGE = Path(__file__).parent.parent
_PROGRAMS = _PACKAGE / "examples"
"""Programs that ship with the package are programs like any other."""


class GraphBuilder:
    """Adds nodes to a topology, and numbers them as Kafka does."""

    def __init__(self) -> None:
        self.graph = TopologyGraph()
        self._index = 0
        self._priority = 0
        self._shared_repartitions: dict[int, tuple[object, str]] = {}
        """The repartition of each named grouping, by the identity of its handle.

        The entry keeps the handle alive, so that no other handle gets its identity.
        """
        self.join_repartitions: dict[str, str] = {}
        """The repartition that the first join of a stream adds; the next join uses it too."""

    def name(self, prefix: str, chosen: str | None = None) -> str:
        """Return the name of a step: the one that the user chose, or a generated one.

        A named step still uses up an index, so that generated names stay stable.
        """
        generated = numbered(prefix, self._next_index())
        return generated if chosen is None else checked_name(chosen, what="step")

    def suffixed(self, prefix: str, chosen: str | None, suffix: str) -> str:
        """Return the name of a node of a step: the chosen one with a suffix, or a generated one."""
        generated = numbered(prefix, self._next_index())
        return generated if chosen is None else checked_name(chosen + suffix, what="step")

    def store_name(self, prefix: str) -> str:
        """Return a generated name of a store."""
        return numbered(prefix + STORE_INFIX, self._next_index())

    def burn_index(self) -> None:
        """Use up an index where Kafka uses one up."""
        self._next_index()

    def _next_index(self) -> int:
        index = self._index
        self._index += 1
        return index

    def add(self, node: Node) -> str:
        """Add a node and return its name."""
        call, origin = _user_call()
        added = replace(node, priority=self._next_priority(), origin=origin, call=call)
        self.graph = self.graph.adding(added)
        return node.name

    def add_again(self, name: str) -> None:
        """Move a node behind all nodes added after it, as Kafka does if it is used again."""
        moved = replace(self.graph.nodes[name], priority=self._next_priority())
        self.graph = self.graph.replacing(moved)

    def replace_node(self, node: Node) -> None:
        """Replace the node that has the name of ``node``."""
        self.graph = self.graph.replacing(node)

    def add_store(self, store: StoreBuilder[Any]) -> None:
        """Add a store, unless the topology has it already."""
        self.graph = self.graph.adding_store(store)

    def add_global_store(self, store: StoreBuilder[Any], node: GlobalStoreNode) -> None:
        """Add a global store and the node that maintains it; its topic is its changelog."""
        self.add_store(replace(store, logging=False, caching=False, logged_for_queries=True))
        self.add(node)

    def connect(self, processor: str, stores: Iterable[str]) -> None:
        """Connect stores to a processor."""
        self.graph = self.graph.connecting(processor, stores)

    def copartition(self, sources: Iterable[str]) -> None:
        """Require the same number of partitions of all ``sources``."""
        groups = (*self.graph.copartitions, frozenset(sources))
        self.graph = replace(self.graph, copartitions=groups)

    def add_join(self, join: StreamJoin) -> None:
        """Add the description of a join of two streams, for the optimisations."""
        self.graph = replace(self.graph, joins=(*self.graph.joins, join))

    def _next_priority(self) -> int:
        self._priority += 1
        return self._priority

    def repartition(
        self,
        parent: str,
        prefix: str,
        key: SerdeSlot,
        value: SerdeSlot,
        *,
        mergeable: bool = True,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        generated_name: bool = False,
    ) -> RepartitionNode:
        """Return a new repartition without adding it; its name is the source that children read.

        ``prefix`` is that of the topic: the name of the step, the grouping or the store. Without
        ``partitions`` it has as many as upstream.
        """
        suffix = "" if prefix.endswith(REPARTITION_SUFFIX) else REPARTITION_SUFFIX
        topic = prefix + suffix
        names = {
            "sink": self.name("KSTREAM-SINK-"),
            "filter": self.name("KSTREAM-FILTER-"),
            "source": self.name("KSTREAM-SOURCE-"),
        }
        if not is_generated_stream_name(prefix):
            names = {part: f"{topic}-{part}" for part in names}
        return RepartitionNode(
            name=self._unused(names["source"]),
            source=names["source"],
            parents=(parent,),
            topic=topic,
            sink=names["sink"],
            filter=names["filter"],
            key=key,
            value=value,
            partitions=partitions,
            partitioner=partitioner,
            mergeable=mergeable,
            generated_name=generated_name,
        )

    def _unused(self, name: str) -> str:
        # Two repartitions may need one name, until an optimisation merges them.
        while name in self.graph.nodes:
            name += "+"
        return name

    def add_shared(self, grouped: object, between: RepartitionNode) -> str:
        """Return the name of the repartition of a named grouping; add it at the first call."""
        _, shared = self._shared_repartitions.get(id(grouped), (grouped, None))
        if shared is None:
            self._shared_repartitions[id(grouped)] = (grouped, between.name)
            return self.add(between)
        self.add_again(shared)
        return shared

    def send_old_values(self, table: str, *, materialize: bool) -> bool:
        """Make a table send old values with its changes, if it can; return whether it does.

        If ``materialize``, tables upstream may get a store for this.
        """
        node, operation = self._table(table)
        if operation.sends_old_values:
            return True

        def parents_send() -> bool:
            sends = [self.send_old_values(p, materialize=materialize) for p in node.parents]
            return all(sends)

        changed = operation.sending_old_values(parents_send, materialize=materialize)
        if changed is None:
            return False
        self._replace_operation(table, changed)
        return True

    def look_up(self, table: str) -> tuple[str, ...]:
        """Make the values of a table readable by key; return the stores that a look-up reads."""
        node, operation = self._table(table)
        ready = operation.materialized()
        if ready is not operation:
            self._replace_operation(table, ready)
        if ready.store_name is not None:
            return (ready.store_name,)
        # A look-up through a computed table also runs its transformers, with their stores.
        stores = [store for parent in node.parents for store in self.look_up(parent)]
        return tuple(dict.fromkeys(ready.stores_read(node.stores, stores)))

    def _table(self, name: str) -> tuple[ProcessorNode, TableOperation]:
        node = self.graph.nodes[name]
        if not isinstance(node, ProcessorNode) or not isinstance(node.operation, TableOperation):
            msg = f"{name!r} is not a table."
            raise TopologyError(msg)
        return node, node.operation

    def _replace_operation(self, name: str, operation: TableOperation) -> None:
        node, _ = self._table(name)
        store = operation.store_name
        stores = node.stores if store is None else tuple(dict.fromkeys((*node.stores, store)))
        self.replace_node(replace(node, operation=operation, stores=stores))

    def build(self) -> TopologyGraph:
        """Return the current topology."""
        return replace(self.graph, next_index=self._index)


def _user_call() -> tuple[str | None, str | None]:
    """Return the method of this package that the program calls, and its line: ``app.py:31``."""
    call = None
    frame = sys._getframe(1)  # noqa: SLF001  # the documented way to inspect one's caller cheaply
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if _PACKAGE not in path.parents or _PROGRAMS in path.parents:
            return call, f"{path.name}:{frame.f_lineno}"
        call = frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]  # ends at the outermost frame
    return None, None
