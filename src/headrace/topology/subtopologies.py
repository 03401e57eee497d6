"""Cut a lowered graph where records change partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.state.specs import StoreBuilder
from headrace.topology.graph import TopologyGraph
from headrace.topology.nodes import GlobalStoreNode, Node, ProcessorNode, SourceNode


@dataclass(frozen=True)
class Subtopology:
    """The nodes that run together in one task: connected by edges, or by a store they share."""

    id: int
    nodes: Mapping[str, Node]
    stores: Mapping[str, StoreBuilder[Any]]

    @property
    def is_global(self) -> bool:
        """Return whether it only maintains a global store."""
        return any(isinstance(node, GlobalStoreNode) for node in self.nodes.values())

    @property
    def sources(self) -> list[SourceNode]:
        """The sources, in build order."""
        return [node for node in self.nodes.values() if isinstance(node, SourceNode)]


def split_subtopologies(graph: TopologyGraph) -> list[Subtopology]:
    """Return the subtopologies of a lowered graph, numbered in the order of their first nodes."""
    roots = _Groups()
    for name, node in graph.nodes.items():
        roots.add(name)
        for parent in node.parents:
            roots.unite(parent, name)
    users: dict[str, str] = {}
    for name, node in graph.nodes.items():
        for store in node.stores if isinstance(node, ProcessorNode) else ():
            if store in users:
                roots.unite(users[store], name)
            users.setdefault(store, name)
    groups: dict[str, dict[str, Node]] = {}
    for name, node in graph.nodes.items():
        groups.setdefault(roots.root(name), {})[name] = node
    return [
        Subtopology(id=number, nodes=nodes, stores=_stores_of(nodes, graph))
        for number, nodes in enumerate(groups.values())
    ]


def _stores_of(nodes: Mapping[str, Node], graph: TopologyGraph) -> dict[str, StoreBuilder[Any]]:
    used: dict[str, None] = {}
    for node in nodes.values():
        if isinstance(node, ProcessorNode):
            used.update(dict.fromkeys(node.stores))
        elif isinstance(node, GlobalStoreNode):
            used[node.store] = None
    return {name: graph.stores[name] for name in graph.stores if name in used}


class _Groups:
    """Names united step by step into groups (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def add(self, name: str) -> None:
        self._parent.setdefault(name, name)

    def root(self, name: str) -> str:
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def unite(self, one: str, other: str) -> None:
        self._parent[self.root(other)] = self.root(one)
