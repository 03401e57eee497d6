"""One window store for a stream that is joined with itself."""

from __future__ import annotations

from dataclasses import replace

from headrace.topology.graph import StreamJoin, TopologyGraph
from headrace.topology.nodes import ProcessorNode


def single_store_self_join(graph: TopologyGraph) -> TopologyGraph:
    """Run a join of a stream with itself on one store: every record meets itself.

    Kafka's ``single.store.self.join``::

              ┌─ window ── join ─┐
        views ┤                  ├─ merge   =>   views ── window ── merge
              └─ window ── join ─┘
    """
    for join in graph.joins:
        left, right = graph.nodes[join.left_window], graph.nodes[join.right_window]
        if left.parents == right.parents:
            graph = _joined_on_one_store(graph, join)
    return graph


def _joined_on_one_store(graph: TopologyGraph, join: StreamJoin) -> TopologyGraph:
    merge, this = graph.nodes[join.merge], graph.nodes[join.this]
    assert isinstance(merge, ProcessorNode), f"{merge.name} merges the sides of a join"
    assert isinstance(this, ProcessorNode), f"{this.name} joins one side"
    joined = replace(
        merge,
        parents=(join.left_window,),
        operation=join.self_join,
        stores=(join.this_store,),
        # A repartition above keeps records without a key as it would without this rule.
        keeps_null_keys=this.keeps_null_keys,
    )
    graph = graph.without((join.right_window, join.this, join.other)).replacing(joined)
    return replace(
        graph.without_stores((join.other_store,)),
        joins=tuple(other for other in graph.joins if other is not join),
    )
