"""The graph that the DSL, the rules and the engine share. Immutable: changes make a new one."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from headrace.errors import TopologyError
from headrace.processors.operation import Operation
from headrace.state.specs import StoreBuilder
from headrace.topology.nodes import GlobalStoreNode, Node, ProcessorNode, SinkNode


@dataclass(frozen=True)
class StreamJoin:
    """The nodes of a windowed join of two streams, which a self join shares."""

    left_window: str
    right_window: str
    this: str
    other: str
    merge: str
    this_store: str
    other_store: str
    self_join: Operation
    """The operation that runs instead if both sides are one stream."""


@dataclass(frozen=True)
class TopologyGraph:
    """Nodes and stores, by name, in the order they were added."""

    nodes: Mapping[str, Node] = field(default_factory=lambda: MappingProxyType({}))
    stores: Mapping[str, StoreBuilder[Any]] = field(default_factory=lambda: MappingProxyType({}))
    copartitions: tuple[frozenset[str], ...] = ()
    """Groups of sources that must have the same number of partitions."""
    joins: tuple[StreamJoin, ...] = ()
    next_index: int = 0
    """The next number of the DSL's counter, also for nodes that rules make."""

    def adding(self, node: Node) -> TopologyGraph:
        """Return this graph with one more node.

        Raises:
            TopologyError: The name is taken, or a parent is unknown or cannot have children.
        """
        for name in (node.name, *_processors((node,))):
            if name in self.nodes or name in _processors(self.nodes.values()):
                msg = f"Two steps are called {name!r}. Give one of them another `name=`."
                raise TopologyError(msg)
        for parent in node.parents:
            self._check_parent(node.name, parent)
        return replace(self, nodes=MappingProxyType({**self.nodes, node.name: node}))

    def _check_parent(self, child: str, parent: str) -> None:
        if parent == child:
            msg = f"{child!r} is its own parent. Connect it to an earlier step."
            raise TopologyError(msg)
        if parent not in self.nodes:
            msg = (
                f"{child!r} names the parent {parent!r}, which was not added. "
                f"Add it first; so far there are {sorted(self.nodes) or 'no steps'}."
            )
            raise TopologyError(msg)
        if isinstance(self.nodes[parent], SinkNode):
            msg = f"{child!r} names the sink {parent!r} as its parent. A sink has no children."
            raise TopologyError(msg)
        if isinstance(self.nodes[parent], GlobalStoreNode):
            msg = (
                f"{child!r} names {parent!r} as its parent, which only maintains a global store. "
                "Read another topic, and look the store up."
            )
            raise TopologyError(msg)

    def adding_store(self, store: StoreBuilder[Any]) -> TopologyGraph:
        """Return this graph with one more store; the same store again changes nothing.

        Raises:
            TopologyError: Another store has that name, or it is no builder of `Stores`.
        """
        check_builder(store)
        known = self.stores.get(store.name)
        if known is not None and known is not store:
            msg = f"Two stores are called {store.name!r}. Give one of them another name."
            raise TopologyError(msg)
        return replace(self, stores=MappingProxyType({**self.stores, store.name: store}))

    def connecting(self, processor: str, stores: Iterable[str]) -> TopologyGraph:
        """Return this graph with stores connected to a processor.

        Raises:
            TopologyError: The step is not a processor, or a store was not added.
        """
        node = self.nodes.get(processor)
        if not isinstance(node, ProcessorNode):
            what = "was not added" if node is None else "is not a processor"
            msg = f"{processor!r} {what}, so no store can be connected to it."
            raise TopologyError(msg)
        for store in stores:
            if store not in self.stores:
                msg = (
                    f"Processor {processor!r} uses store {store!r}, which was not added. "
                    "Add it with `add_state_store`, or pass its builder in `stores=`."
                )
                raise TopologyError(msg)
            if store in _global_stores(self.nodes.values()):
                msg = (
                    f"Processor {processor!r} names the global store {store!r}. "
                    "Every processor may read it: leave it out."
                )
                raise TopologyError(msg)
        together = tuple(dict.fromkeys((*node.stores, *stores)))
        return self.replacing(replace(node, stores=together))

    def replacing(self, node: Node) -> TopologyGraph:
        """Return this graph with ``node`` in place of the one of its name."""
        return replace(self, nodes=MappingProxyType({**self.nodes, node.name: node}))

    def replacing_store(self, store: StoreBuilder[Any]) -> TopologyGraph:
        """Return this graph with ``store`` in place of the one of its name."""
        return replace(self, stores=MappingProxyType({**self.stores, store.name: store}))

    def without(self, names: Iterable[str]) -> TopologyGraph:
        """Return this graph without the nodes of those names."""
        gone = set(names)
        nodes = {name: node for name, node in self.nodes.items() if name not in gone}
        return replace(self, nodes=MappingProxyType(nodes))

    def without_stores(self, names: Iterable[str]) -> TopologyGraph:
        """Return this graph without the stores of those names."""
        gone = set(names)
        stores = {name: store for name, store in self.stores.items() if name not in gone}
        return replace(self, stores=MappingProxyType(stores))

    def reparenting(self, change: Callable[[Node], tuple[str, ...]]) -> TopologyGraph:
        """Return this graph with the parents that ``change`` gives each node."""
        nodes: dict[str, Node] = {}
        for name, node in self.nodes.items():
            parents = change(node)
            nodes[name] = node if parents == node.parents else replace(node, parents=parents)
        return replace(self, nodes=MappingProxyType(nodes))

    def children(self) -> dict[str, list[str]]:
        """Return the names of each node's children, in build order."""
        children: dict[str, list[str]] = {name: [] for name in self.nodes}
        for name in self.nodes:
            for parent in dict.fromkeys(self.nodes[name].parents):
                children[parent].append(name)
        return children

    def in_build_order(self) -> TopologyGraph:
        """Return this graph with parents before children; else by priority, then as added."""
        followers: dict[str, list[str]] = {name: [] for name in self.nodes}
        waiting = dict.fromkeys(self.nodes, 0)
        for name, node in self.nodes.items():
            for earlier in dict.fromkeys((*node.parents, *node.after)):
                if earlier in followers:
                    followers[earlier].append(name)
                    waiting[name] += 1
        ranks = {name: (node.priority, at) for at, (name, node) in enumerate(self.nodes.items())}
        ready = [(ranks[name], name) for name in self.nodes if not waiting[name]]
        heapq.heapify(ready)
        ordered: dict[str, Node] = {}
        while ready:
            _, name = heapq.heappop(ready)
            ordered[name] = self.nodes[name]
            for follower in followers[name]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready, (ranks[follower], follower))
        if len(ordered) < len(self.nodes):
            msg = f"The steps {sorted(set(self.nodes) - set(ordered))} form a cycle. Break it."
            raise TopologyError(msg)
        return replace(self, nodes=MappingProxyType(ordered))


def _processors(nodes: Iterable[Node]) -> set[str]:
    """Return the names of the processors that maintain global stores; they are no nodes."""
    return {node.processor for node in nodes if isinstance(node, GlobalStoreNode)}


def _global_stores(nodes: Iterable[Node]) -> set[str]:
    return {node.store for node in nodes if isinstance(node, GlobalStoreNode)}


def check_builder(store: object) -> None:
    """Check that a store is a builder that `Stores` made.

    Raises:
        TopologyError: It is another object, such as a store of the user's own.
    """
    if type(store) is not StoreBuilder:
        msg = (
            f"{store!r} is not a store builder, and Headrace cannot run stores of your own. "
            "Use one of `Stores`, for example `Stores.key_value(…)`."
        )
        raise TopologyError(msg)
