"""The source topic of a table as the changelog of its store."""

from __future__ import annotations

from dataclasses import replace

from headrace.processors.table_source import TableSource
from headrace.topology.graph import TopologyGraph
from headrace.topology.nodes import ProcessorNode, SourceNode


def reuse_source_topics(graph: TopologyGraph) -> TopologyGraph:
    """Give the stores of source tables no changelog of their own, except for queries.

    Kafka's ``reuse.ktable.source.topics``: what the store holds can be read from the topic again.
    """
    for node in graph.nodes.values():
        if not isinstance(node, ProcessorNode) or not isinstance(node.operation, TableSource):
            continue
        source = graph.nodes[node.parents[0]]
        if not isinstance(source, SourceNode) or source.shared:
            continue  # `to_table` has no topic of its own
        for name in node.stores:
            store = graph.stores[name]
            graph = graph.replacing_store(
                replace(
                    store,
                    logging=False,
                    changelog=source.topics[0],
                    logged_for_queries=store.queryable,
                )
            )
    return graph
