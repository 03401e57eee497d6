"""From what the user described to what a task runs: rewrite, resolve, expand, cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from headrace.processors.branch import PassThrough
from headrace.processors.filter import FilterNullKeys
from headrace.serdes.base import Serde
from headrace.serdes.slots import SerdeSlot
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
"""What `topology.optimization` may ask for, in the order in which Kafka applies it."""


@dataclass(frozen=True, kw_only=True)
class TopologyDefaults:
    """What an application's settings say about its topology."""

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
        """What `describe` shows."""
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


def settle(graph: TopologyGraph, defaults: TopologyDefaults) -> TopologyGraph:
    """Return the graph with optimisations applied and every serde that is needed filled in.

    Raises:
        TopologyError: The program is wrong, or a step has no serde.
    """
    graph = rewrite(graph, defaults.optimizations)
    used = _used_stores(graph)
    if defaults.explicit_names:
        check_explicit_names(graph)
    nodes = {name: _resolved(node, defaults) for name, node in graph.nodes.items()}
    stores = {
        name: store.resolved(
            defaults.key_serde, defaults.value_serde, persistent=defaults.persistent_stores
        )
        for name, store in graph.stores.items()
        if name in used
    }
    return replace(graph, nodes=MappingProxyType(nodes), stores=MappingProxyType(stores))


def lower(graph: TopologyGraph, defaults: TopologyDefaults | None = None) -> LoweredTopology:
    """Return what runs.

    Args:
        graph: What the user described.
        defaults: What the settings say; without them serdes stay as they are, for `describe`.

    Raises:
        TopologyError: The program is wrong, or a step has no serde.
    """
    graph = rewrite(graph) if defaults is None else settle(graph, defaults)
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


def _used_stores(graph: TopologyGraph) -> set[str]:
    """Return the stores some node uses; Kafka leaves the others out of the topology."""
    used: set[str] = set()
    for node in graph.nodes.values():
        if isinstance(node, ProcessorNode):
            used.update(node.stores)
        elif isinstance(node, GlobalStoreNode):
            used.add(node.store)
    return used


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


def _resolved(node: Node, defaults: TopologyDefaults) -> Node:
    if isinstance(node, ProcessorNode):
        operation = node.operation.resolved(
            defaults.key_serde, defaults.value_serde, needed_by=node.name
        )
        return node if operation is node.operation else replace(node, operation=operation)
    if not isinstance(node, SourceNode | SinkNode | RepartitionNode | GlobalStoreNode):
        return node
    return replace(
        node,
        key=_filled(node.key, defaults, node.name),
        value=_filled(node.value, defaults, node.name),
    )


def _filled(slot: SerdeSlot, defaults: TopologyDefaults, node: str) -> SerdeSlot:
    # The value of a foreign-key subscription is made of a key: the slot says whose default counts.
    default = defaults.key_serde if slot.part == "key" else defaults.value_serde
    return slot.resolved(default, needed_by=node)
