"""Finds the line of the program that made each step of a lowered graph."""

from __future__ import annotations

from headrace.topology.graph import TopologyGraph
from headrace.topology.nodes import SinkNode, SourceNode


def origins_of(graph: TopologyGraph) -> dict[str, str]:
    """Return the line of each step that has one: ``app.py:31``.

    The steps of a repartition were made by the step before them, which asked for it.
    """
    origins: dict[str, str] = {}
    topics: dict[str, str] = {}
    for name, node in graph.nodes.items():
        parents = (origins[parent] for parent in node.parents if parent in origins)
        origin = node.origin or next(parents, None)
        if origin is None and isinstance(node, SourceNode) and node.internal:
            origin = topics.get(node.topics[0])
        if origin is not None:
            origins[name] = origin
            if isinstance(node, SinkNode) and isinstance(node.topic, str):
                topics[node.topic] = origin
    return origins
