"""Marks the operations that read versioned tables."""

from __future__ import annotations

from dataclasses import fields, replace

from headrace.errors import TopologyError
from headrace.processors.suppress import Suppress
from headrace.topology.graph import TopologyGraph
from headrace.topology.nodes import Node, ProcessorNode


def versioned_semantics(graph: TopologyGraph) -> TopologyGraph:
    """Mark the operations that treat out-of-order updates of a versioned table otherwise.

    A table is versioned if its store is, and stays so through steps without a store of their own.

    Raises:
        TopologyError: A versioned table is suppressed.
    """
    for node in list(graph.nodes.values()):
        suppresses = isinstance(node, ProcessorNode) and isinstance(node.operation, Suppress)
        if not isinstance(node, ProcessorNode) or not (suppresses or _cares(node)):
            continue
        if any(_is_versioned(graph, graph.nodes[parent]) for parent in node.parents):
            if suppresses:
                raise suppresses_versions(node.name)
            operation = replace(node.operation, versioned=True)  # type: ignore[type-var]  # _cares
            graph = graph.replacing(replace(node, operation=operation))
    return graph


def suppresses_versions(step: str) -> TopologyError:
    """Return the error of a `suppress` on a versioned table."""
    msg = (
        f"Step {step!r} suppresses a versioned table, whose updates may be out of order. "
        "Suppress a table that is stored without `history_retention=`."
    )
    return TopologyError(msg)


def _cares(node: ProcessorNode) -> bool:
    return any(field.name == "versioned" for field in fields(node.operation))  # type: ignore[arg-type]  # operations are dataclasses


def _is_versioned(graph: TopologyGraph, node: Node) -> bool:
    if isinstance(node, ProcessorNode) and node.versioned is not None:
        return node.versioned
    return bool(node.parents) and all(
        _is_versioned(graph, graph.nodes[parent]) for parent in node.parents
    )
