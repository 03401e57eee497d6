"""From the user's graph to the subtopologies of tasks: rewrite, resolve, expand, cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from headrace.errors import MissingSerde, MissingSerdeError
from headrace.processors.branch import PassThrough
from headrace.processors.filter import FilterNullKeys
from headrace.serdes.base import Serde
from headrace.serdes.slots import Fill, SerdeSlot
from headrace.topology.describe import TopologyDescription, describe
from headrace.topology.graph import TopologyGraph
from headrace.topology.nodes import (
    GlobalStoreNode,
    Node,
    ProcessorNode,
    RepartitionNode,
    SinkNode,
    SourceNode,
)
from headrace.topology.rules.merge_repartitions import merge_repartitions
from headrace.topology.rules.merge_sources import merge_sources
from headrace.topology.rules.reuse_source_topics import reuse_source_topics
from headrace.topology.rules.single_store_self_join import single_store_self_join
from headrace.topology.rules.versioned_semantics import versioned_semantics
from headrace.topology.subtopologies import Subtopology, split_subtopologies
from headrace.topology.validate import (
    check_explicit_names,
    check_partition_counts,
    check_repartitions,
    check_topics,
)

Rule: TypeAlias = Callable[[TopologyGraph], TopologyGraph]

OPTIMIZATIONS: Mapping[str, Rule] = MappingProxyType(
    {
        "reuse.ktable.source.topics": reuse_source_topics,
        "merge.repartition.topics": merge_repartitions,
        "single.store.self.join": single_store_self_join,
    }
)
"""The values of `topology.optimization`, in the order in which Kafka applies them."""


@dataclass(frozen=True, kw_only=True)
class TopologyDefaults:
    """The settings of an application that its topology depends on."""

    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    persistent_stores: bool = True
    optimizations: frozenset[str] = frozenset()
    explicit_names: bool = False


@dataclass(frozen=True)
class LoweredTopology:
    """A topology that can run: sources, processors, sinks and stores with their serdes."""

    graph: TopologyGraph
    repartitions: Mapping[str, int | None]
    """Repartition topics without the application id, and the partitions they ask for."""

    @cached_property
    def subtopologies(self) -> list[Subtopology]:
        """The parts that run in tasks of their own; global stores come as parts too."""
        return split_subtopologies(self.graph)

    @cached_property
    def description(self) -> TopologyDescription:
        """The text of `describe`."""
        return describe(self.subtopologies)


def rewrite(graph: TopologyGraph, optimizations: frozenset[str] = frozenset()) -> TopologyGraph:
    """Return the graph with the rules applied that always hold, and the optimisations asked for.

    Raises:
        TopologyError: The program is wrong in a way that shows only as a whole.
    """
    graph = merge_sources(graph)
    for name, rule in OPTIMIZATIONS.items():
        if name in optimizations:
            graph = rule(graph)
    graph = versioned_semantics(graph).in_build_order()
    check_topics(graph)
    check_partition_counts(graph)
    return graph


def resolve(graph: TopologyGraph, defaults: TopologyDefaults) -> TopologyGraph:
    """Return the graph with optimisations applied and every serde that is needed filled in.

    Raises:
        TopologyError: The program is wrong, or a step has no serde.
    """
    slots = _Slots(graph, defaults)
    graph = rewrite(graph, defaults.optimizations)
    users = _users_of_stores(graph)
    if defaults.explicit_names:
        check_explicit_names(graph)
    nodes = {name: _resolved(node, slots.filling(node)) for name, node in graph.nodes.items()}
    stores = {
        name: store.resolved(slots.filling(users[name]), persistent=defaults.persistent_stores)
        for name, store in graph.stores.items()
        if name in users
    }
    if slots.missing:
        raise MissingSerdeError(slots.missing.values())
    return replace(graph, nodes=MappingProxyType(nodes), stores=MappingProxyType(stores))


def lower(graph: TopologyGraph, defaults: TopologyDefaults | None = None) -> LoweredTopology:
    """Return the topology that tasks run.

    Without ``defaults`` the serdes stay as they are, for `describe`.

    Raises:
        TopologyError: The program is wrong, or a step has no serde.
    """
    graph = rewrite(graph) if defaults is None else resolve(graph, defaults)
    check_repartitions(graph)
    keeping = _steps_that_keep_null_keys(graph)
    nodes: dict[str, Node] = {}
    repartitions: dict[str, int | None] = {}
    sources = {
        node.name: node.source for node in graph.nodes.values() if isinstance(node, RepartitionNode)
    }
    for node in graph.nodes.values():
        parents = tuple(sources.get(parent, parent) for parent in node.parents)
        placed = replace(node, parents=parents)
        if isinstance(placed, RepartitionNode):
            repartitions[placed.topic] = placed.partitions
            for part in _expanded(placed, keep_null_keys=placed.name in keeping):
                nodes[part.name] = part
        else:
            nodes[placed.name] = placed
    copartitions = tuple(
        frozenset(sources.get(name, name) for name in group) for group in graph.copartitions
    )
    lowered = replace(graph, nodes=MappingProxyType(nodes), joins=(), copartitions=copartitions)
    return LoweredTopology(lowered, MappingProxyType(repartitions))


class _Slots:
    """Fills slots with the default serdes, and collects those that stay empty."""

    def __init__(self, graph: TopologyGraph, defaults: TopologyDefaults) -> None:
        self._nodes = graph.nodes
        self._defaults = {"key": defaults.key_serde, "value": defaults.value_serde}
        self.missing: dict[tuple[str, str], MissingSerde] = {}
        """By key or value, and by the call that does not state the type."""

    def filling(self, node: Node) -> Fill:
        """Return the function that fills the slots of a node."""

        def fill(slot: SerdeSlot) -> SerdeSlot:
            # The value of a foreign-key subscription is made of a key: the part of the slot counts.
            default = self._defaults[slot.part]
            if default is not None:
                return slot.resolved(default)
            if slot.serde is None:
                empty, needed_by = slot.innermost, _call(node)
                lost_by = _call(self._nodes.get(empty.lost_by or "", node))
                missing = MissingSerde(empty.part, needed_by, lost_by, empty.remedy)
                self.missing.setdefault((empty.part, lost_by), missing)
            return slot

        return fill


def _call(node: Node) -> str:
    """Return the call of the program that made a node, or its name in the Processor API."""
    return f"step {node.name!r}" if node.call is None else f"{node.call}(…) at {node.origin}"


def _users_of_stores(graph: TopologyGraph) -> dict[str, Node]:
    """Return the first node that uses each store; Kafka leaves unused stores out."""
    users: dict[str, Node] = {}
    for node in graph.nodes.values():
        if isinstance(node, ProcessorNode):
            for store in node.stores:
                users.setdefault(store, node)
        elif isinstance(node, GlobalStoreNode):
            users.setdefault(node.store, node)
    return users


def _steps_that_keep_null_keys(graph: TopologyGraph) -> set[str]:
    """Return the steps with an operation downstream to which records without a key matter."""
    keeping: set[str] = set()
    for node in reversed(list(graph.nodes.values())):
        if node.name in keeping or (isinstance(node, ProcessorNode) and node.keeps_null_keys):
            keeping.update(node.parents)
    return keeping


def _expanded(node: RepartitionNode, *, keep_null_keys: bool) -> list[Node]:
    nodes: list[Node] = []
    parents = node.parents
    if node.filter is not None:
        operation = PassThrough() if keep_null_keys else FilterNullKeys()
        nodes.append(ProcessorNode(name=node.filter, parents=parents, operation=operation))
        parents = (node.filter,)
    sink = SinkNode(
        name=node.sink,
        parents=parents,
        topic=node.topic,
        key=node.key,
        value=node.value,
        partitioner=node.partitioner,
        internal=True,
    )
    source = SourceNode(
        name=node.source, topics=(node.topic,), key=node.key, value=node.value, internal=True
    )
    return [*nodes, sink, source]


def _resolved(node: Node, fill: Fill) -> Node:
    if isinstance(node, ProcessorNode):
        operation = node.operation.resolved(fill)
        return node if operation is node.operation else replace(node, operation=operation)
    if not isinstance(node, SourceNode | SinkNode | RepartitionNode | GlobalStoreNode):
        return node
    return replace(node, key=fill(node.key), value=fill(node.value))
