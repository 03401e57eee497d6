"""The description of a topology as plain data, for JSON."""

from __future__ import annotations

from typing import Any

from headrace.topology.describe import (
    DescribedNode,
    DescribedProcessor,
    DescribedSink,
    DescribedSource,
    TopologyDescription,
)


def description_data(description: TopologyDescription, origins: dict[str, str]) -> dict[str, Any]:
    """Return a description as data for JSON."""
    return {
        "subtopologies": [
            {
                "id": subtopology.id,
                "nodes": [_node_data(node, origins) for node in subtopology.nodes],
            }
            for subtopology in description.subtopologies
        ],
        "global_stores": [
            {
                "id": store.id,
                "source": _node_data(store.source, origins),
                "processor": _node_data(store.processor, origins),
            }
            for store in description.global_stores
        ],
    }


def _node_data(node: DescribedNode, origins: dict[str, str]) -> dict[str, Any]:
    data: dict[str, Any] = {"name": node.name, "type": "processor"}
    if isinstance(node, DescribedSource):
        data |= {"type": "source", "topics": list(node.topics), "pattern": node.pattern}
    elif isinstance(node, DescribedSink):
        data |= {"type": "sink", "topic": node.topic, "chooser": node.chooser}
    elif isinstance(node, DescribedProcessor):
        data |= {"stores": list(node.stores)}
    return data | {
        "predecessors": list(node.predecessors),
        "successors": list(node.successors),
        "origin": origins.get(node.name),
    }
