"""Adds `suppress`: its buffer, and how long changes wait in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.dsl.graph import GraphBuilder
from headrace.dsl.options import Suppressed
from headrace.errors import TopologyError
from headrace.processors.suppress import Suppress
from headrace.state.specs import StoreBuilder
from headrace.topology.nodes import ProcessorNode
from headrace.topology.rules.versioned_semantics import suppresses_versions

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable


def suppressed_table(table: KTable[Any, Any], suppressed: Suppressed) -> KTable[Any, Any]:
    """Add the suppression of a table and return the suppressed table.

    Raises:
        TopologyError: The table is versioned, or it has no windows that could close.
    """
    graph = table.graph
    # An explicit name uses up no index here, as in Kafka.
    node = suppressed.name or graph.name("KTABLE-SUPPRESS-")
    parent = graph.graph.nodes[table.node]
    if isinstance(parent, ProcessorNode) and parent.versioned:
        raise suppresses_versions(node)
    wait_ms = suppressed.limit_ms
    if suppressed.until_close:
        wait_ms = _window_grace(graph, table.node, node)
    named = suppressed.name is not None
    store = f"{node}-store" if named else graph.store_name("KTABLE-SUPPRESS-")
    graph.send_old_values(table.node, materialize=True)
    graph.add_store(
        StoreBuilder(
            name=store,
            kind="suppress_buffer",
            key=table.key_slot,
            value=table.value_slot,
            persistent=False,
            logging=suppressed.logging,
            generated_name=not named and suppressed.logging is not False,
        )
    )
    operation = Suppress(
        buffer=store,
        wait_ms=wait_ms,
        until_close=suppressed.until_close,
        max_records=suppressed.max_records,
        max_bytes=suppressed.max_bytes,
        emits_early=suppressed.emits_early,
        sends_old_values=True,
    )
    graph.add(
        ProcessorNode(
            name=node, parents=(table.node,), operation=operation, stores=(store,), versioned=False
        )
    )
    return replace(table, node=node, queryable_store_name=None)


def _window_grace(graph: GraphBuilder, start: str, step: str) -> int:
    """Return how long after its end a window may still change: the longest of all parents.

    Raises:
        TopologyError: A parent has no windows.
    """
    graces: list[int] = []
    waiting, seen = [start], {start}
    while waiting:
        node = graph.graph.nodes[waiting.pop()]
        grace = node.grace_ms if isinstance(node, ProcessorNode) else None
        if grace is not None:
            graces.append(grace)
            continue
        if not node.parents:
            msg = (
                f"Step {step!r} waits for windows to close, but {node.name!r} reads records "
                "without windows. Aggregate with `windowed_by` first, or use "
                "`Suppressed.until_time_limit`."
            )
            raise TopologyError(msg)
        waiting.extend(parent for parent in node.parents if parent not in seen)
        seen.update(node.parents)
    return max(graces)
