"""The text Kafka's ``Topology.describe()`` prints, and the same as data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.topology.java_order import JavaTreeOrder, in_java_hash_order
from headrace.topology.nodes import GlobalStoreNode, Node, ProcessorNode, SinkNode, SourceNode
from headrace.topology.subtopologies import SubTopology


@dataclass(frozen=True)
class DescribedNode:
    """A source, processor or sink with its neighbours."""

    name: str
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]


@dataclass(frozen=True)
class DescribedSource(DescribedNode):
    """A source and what it reads."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def __str__(self) -> str:
        topics = f"[{', '.join(self.topics)}]" if self.pattern is None else self.pattern
        return f"Source: {self.name} (topics: {topics})\n      --> {_names(self.successors)}"


@dataclass(frozen=True)
class DescribedProcessor(DescribedNode):
    """A processor and the stores it uses."""

    stores: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"Processor: {self.name} (stores: [{', '.join(self.stores)}])\n"
            f"      --> {_names(self.successors)}\n      <-- {_names(self.predecessors)}"
        )


@dataclass(frozen=True)
class DescribedSink(DescribedNode):
    """A sink and where it writes: a topic, or the function that chooses one."""

    topic: str | None = None
    chooser: str | None = None

    def __str__(self) -> str:
        where = f"extractor class: {self.chooser}" if self.topic is None else f"topic: {self.topic}"
        return f"Sink: {self.name} ({where})\n      <-- {_names(self.predecessors)}"


@dataclass(frozen=True)
class DescribedSubTopology:
    """The nodes of one sub-topology, in Kafka's order: larger trees first, then by name."""

    id: int
    nodes: tuple[DescribedNode, ...]

    def __str__(self) -> str:
        lines = "".join(f"    {node}\n" for node in self.nodes)
        return f"Sub-topology: {self.id}\n{lines}\n"


@dataclass(frozen=True)
class DescribedGlobalStore:
    """A global store with the source and the processor that maintain it."""

    id: int
    source: DescribedSource
    processor: DescribedProcessor

    def __str__(self) -> str:
        return (
            f"Sub-topology: {self.id} for global store (will not generate tasks)\n"
            f"    {self.source}\n    {self.processor}\n"
        )


@dataclass(frozen=True)
class TopologyDescription:
    """What a topology is made of. Its text is Kafka's, character by character."""

    subtopologies: tuple[DescribedSubTopology, ...]
    global_stores: tuple[DescribedGlobalStore, ...]

    def __str__(self) -> str:
        parts: list[DescribedSubTopology | DescribedGlobalStore]
        parts = sorted((*self.subtopologies, *self.global_stores), key=lambda part: part.id)
        return "Topologies:\n " + "".join(f"  {part}" for part in parts)


def describe(parts: list[SubTopology]) -> TopologyDescription:
    """Return the description of a lowered topology."""
    return TopologyDescription(
        tuple(_described(part) for part in parts if not part.is_global),
        tuple(_described_global(part) for part in parts if part.is_global),
    )


def _described(part: SubTopology) -> DescribedSubTopology:
    before, after, sizes = _neighbours(part)
    nodes = (
        _described_node(part.nodes[name], tuple(before[name]), tuple(after[name]))
        for name in sorted(part.nodes, key=lambda name: (-sizes[name], name))
    )
    return DescribedSubTopology(part.id, tuple(nodes))


def _neighbours(
    part: SubTopology,
) -> tuple[dict[str, JavaTreeOrder], dict[str, JavaTreeOrder], dict[str, int]]:
    """Return predecessors, successors and tree sizes.

    Kafka ranks neighbours by the size of the tree below them, as it is when they are connected,
    and connects nodes in the order of a Java hash map; so do we.
    """
    sizes = dict.fromkeys(part.nodes, 1)

    def rank(name: str) -> tuple[int, str]:
        return -sizes[name], name

    before = {name: JavaTreeOrder(rank) for name in part.nodes}
    after = {name: JavaTreeOrder(rank) for name in part.nodes}

    def grow(name: str, size: int) -> None:
        sizes[name] += size
        for parent in before[name]:
            grow(parent, size)

    for name in in_java_hash_order(part.nodes):
        for parent in dict.fromkeys(part.nodes[name].parents):
            before[name].add(parent)
            after[parent].add(name)
            grow(parent, sizes[name])
    return before, after, sizes


def _described_node(
    node: Node, predecessors: tuple[str, ...], successors: tuple[str, ...]
) -> DescribedNode:
    if isinstance(node, SourceNode):
        pattern = None if node.pattern is None else _java_pattern(node.pattern)
        return DescribedSource(
            node.name, predecessors, successors, tuple(in_java_hash_order(node.topics)), pattern
        )
    if isinstance(node, SinkNode):
        topic = node.topic if isinstance(node.topic, str) else None
        chooser = None if isinstance(node.topic, str) else _function_name(node.topic)
        return DescribedSink(node.name, predecessors, successors, topic, chooser)
    assert isinstance(node, ProcessorNode), f"{node.name} was not lowered"
    return DescribedProcessor(
        node.name, predecessors, successors, tuple(in_java_hash_order(node.stores))
    )


def _described_global(part: SubTopology) -> DescribedGlobalStore:
    node = next(iter(part.nodes.values()))
    assert isinstance(node, GlobalStoreNode), f"{node.name} is no global store"
    return DescribedGlobalStore(
        part.id,
        DescribedSource(node.name, (), (node.processor,), (node.topic,)),
        DescribedProcessor(node.processor, (node.name,), (), (node.store,)),
    )


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _java_pattern(pattern: re.Pattern[str]) -> str:
    return pattern.pattern


def _function_name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
