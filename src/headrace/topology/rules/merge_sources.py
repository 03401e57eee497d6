"""One source for streams that read the same topics."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import TopologyError
from headrace.topology.graph import TopologyGraph
from headrace.topology.nodes import Node, SourceNode


def merge_sources(graph: TopologyGraph) -> TopologyGraph:
    """Merge the sources of streams of the same topics into the first one.

    ::

        orders ── filter          orders ─┬─ filter
        orders ── map       =>            └─ map

    Raises:
        TopologyError: Two streams read some, but not all, of the same topics.
    """
    replaced: dict[str, str] = {}
    readers: dict[object, SourceNode] = {}
    for node in graph.nodes.values():
        if not isinstance(node, SourceNode) or not node.shared:
            continue
        if node.pattern is not None:
            first = readers.setdefault(node.subscription, node)
        else:
            first = node
            for topic in node.topics:
                first = readers.setdefault(topic, first)
                _check_same(first, node, topic)
        if first is not node:
            _check_compatible(first, node)
            replaced[node.name] = first.name
    if not replaced:
        return graph

    def shared_parents(node: Node) -> tuple[str, ...]:
        return tuple(dict.fromkeys(replaced.get(parent, parent) for parent in node.parents))

    merged = graph.reparenting(shared_parents).without(replaced)
    groups = (frozenset(replaced.get(name, name) for name in group) for group in graph.copartitions)
    return replace(merged, copartitions=tuple(groups))


def _check_same(first: SourceNode, node: SourceNode, topic: str) -> None:
    if first.subscription != node.subscription:
        msg = (
            f"Sources {first.name!r} and {node.name!r} both read topic {topic!r}, but not the same "
            f"set of topics: {sorted(first.topics)} and {sorted(node.topics)}. "
            "Read the same set in both, or read each topic once and `merge` the streams."
        )
        raise TopologyError(msg)


def _check_compatible(first: SourceNode, node: SourceNode) -> None:
    if first.auto_offset_reset != node.auto_offset_reset:
        msg = (
            f"Sources {first.name!r} and {node.name!r} read the same topics with different "
            f"`auto_offset_reset`: {first.auto_offset_reset!r} and {node.auto_offset_reset!r}. "
            "Give both the same."
        )
        raise TopologyError(msg)
    differing = [
        part
        for part, one, other in (
            ("key", first.key.serde, node.key.serde),
            ("value", first.value.serde, node.value.serde),
            ("timestamp_extractor", first.timestamp_extractor, node.timestamp_extractor),
        )
        if one is not None and other is not None and one != other
    ]
    if differing:
        msg = (
            f"Sources {first.name!r} and {node.name!r} read the same topics, which are decoded "
            f"once, but have different {' and '.join(f'`{part}=`' for part in differing)}. "
            "Give both the same."
        )
        raise TopologyError(msg)
