"""The text Kafka's ``Topology.describe()`` prints, and the same as data."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.topology.java_order import JavaTreeOrder, in_java_hash_order
from headrace.topology.nodes import GlobalStoreNode, Node, ProcessorNode, SinkNode, SourceNode
from headrace.topology.subtopologies import Subtopology


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
    """The nodes of one subtopology, in Kafka's order: larger trees first, then by name."""

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
    """The parts of a topology. Its text is Kafka's, character by character."""

    subtopologies: tuple[DescribedSubTopology, ...]
    global_stores: tuple[DescribedGlobalStore, ...]

    def __str__(self) -> str:
        subtopologies: list[DescribedSubTopology | DescribedGlobalStore]
        subtopologies = sorted(
            (*self.subtopologies, *self.global_stores), key=lambda subtopology: subtopology.id
        )
        return "Topologies:\n " + "".join(f"  {subtopology}" for subtopology in subtopologies)


def describe(subtopologies: list[Subtopology]) -> TopologyDescription:
    """Return the description of a lowered topology."""
    local = (subtopology for subtopology in subtopologies if not subtopology.is_global)
    global_ = (subtopology for subtopology in subtopologies if subtopology.is_global)
    return TopologyDescription(
        tuple(map(_described, local)), tuple(map(_described_global, global_))
    )


def _described(subtopology: Subtopology) -> DescribedSubTopology:
    before, after, sizes = _neighbours(subtopology)
    nodes = (
        _described_node(subtopology.nodes[name], tuple(before[name]), tuple(after[name]))
        for name in sorted(subtopology.nodes, key=lambda name: (-sizes[name], name))
    )
    return DescribedSubTopology(subtopology.id, tuple(nodes))


def _neighbours(
    subtopology: Subtopology,
) -> tuple[dict[str, JavaTreeOrder], dict[str, JavaTreeOrder], dict[str, int]]:
    """Return predecessors, successors and tree sizes.

    Kafka connects nodes in the order of a Java hash map. It ranks neighbours by the size of the
    tree below them at the time when it connects them. This function does the same.
    """
    sizes = dict.fromkeys(subtopology.nodes, 1)

    def rank(name: str) -> tuple[int, str]:
        return -sizes[name], name

    before = {name: JavaTreeOrder(rank) for name in subtopology.nodes}
    after = {name: JavaTreeOrder(rank) for name in subtopology.nodes}

    def grow(name: str, size: int) -> None:
        sizes[name] += size
        for parent in before[name]:
            grow(parent, size)

    for name in in_java_hash_order(subtopology.nodes):
        for parent in dict.fromkeys(subtopology.nodes[name].parents):
            before[name].add(parent)
            after[parent].add(name)
            grow(parent, sizes[name])
    return before, after, sizes


def _described_node(
    node: Node, predecessors: tuple[str, ...], successors: tuple[str, ...]
) -> DescribedNode:
    if isinstance(node, SourceNode):
        pattern = None if node.pattern is None else node.pattern.pattern
        return DescribedSource(
            node.name, predecessors, successors, tuple(in_java_hash_order(node.topics)), pattern
        )
    if isinstance(node, SinkNode):
        if isinstance(node.topic, str):
            return DescribedSink(node.name, predecessors, successors, node.topic)
        chooser = getattr(node.topic, "__qualname__", None) or repr(node.topic)
        return DescribedSink(node.name, predecessors, successors, None, chooser)
    assert isinstance(node, ProcessorNode), f"{node.name} was not lowered"
    return DescribedProcessor(
        node.name, predecessors, successors, tuple(in_java_hash_order(node.stores))
    )


def _described_global(subtopology: Subtopology) -> DescribedGlobalStore:
    node = next(iter(subtopology.nodes.values()))
    assert isinstance(node, GlobalStoreNode), f"{node.name} is no global store"
    return DescribedGlobalStore(
        subtopology.id,
        DescribedSource(node.name, (), (node.processor,), (node.topic,)),
        DescribedProcessor(node.processor, (node.name,), (), (node.store,)),
    )


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
