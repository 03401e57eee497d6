"""The figures for people in a snapshot record: work, lag and errors of the leader's run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from headrace.runtime.run_files import BatchResult, PlannerStatus
from headrace.runtime.snapshots import Offsets

MOST_ERRORS = 50
"""How many kinds of errors a record has, a kind being a step and a reason."""
MOST_ERROR_BYTES = 16 * 1024
MOST_SOURCES = 100
"""How many source nodes a record has."""
_MOST_TEXT = 300


def batch_stats(
    result: BatchResult, status: PlannerStatus, position: Offsets, seconds: float
) -> dict[str, Any]:
    """Return the figures of a batch, and the totals of the run.

    Args:
        result: The result of the batch.
        status: The planner's figures of the inputs.
        position: How far the stores reflect the inputs.
        seconds: How long the batch took.
    """
    totals = result.totals
    return {
        "tasks": len({report.task for report in result.reports}),
        "processed": sum(report.processed for report in result.reports),
        "seconds": round(seconds, 3),
        "batches": totals.batches,
        "processed_total": sum(totals.processed.values()),
        "written": dict(sorted(totals.written.items())),
        "refused": dict(sorted(totals.refused.items())),
        "sources": _sources(result),
        "lag": _lag(status, position),
        "errors": _errors(result),
    }


def _sources(result: BatchResult) -> dict[str, dict[str, int]]:
    """Return how many records source nodes have processed, by subtopology."""
    counts = [
        (subtopology, node, count)
        for subtopology, nodes in sorted(result.totals.sources.items())
        for node, count in sorted(nodes.items())
    ]
    found: dict[str, dict[str, int]] = {}
    for subtopology, node, count in counts[:MOST_SOURCES]:
        found.setdefault(subtopology, {})[node] = count
    return found


def _lag(status: PlannerStatus, position: Offsets) -> Offsets:
    """Return how many offsets of each input are not reflected yet; 0 where nothing is known."""
    return {
        topic: [
            max(0, end - offset) if offset >= 0 else 0
            for offset, end in zip(offsets, status.ends.get(topic, ()), strict=False)
        ]
        for topic, offsets in position.items()
    }


def _errors(result: BatchResult) -> list[dict[str, Any]]:
    """Return the most frequent errors of the run, as many as there is room for."""
    counts: Counter[tuple[str, str]] = Counter()
    for nodes in result.totals.dropped.values():
        for node, reasons in nodes.items():
            for reason, count in reasons.items():
                counts[node, reason] += count
    firsts = {(each.node, each.reason): each for each in result.totals.failures}
    errors: list[dict[str, Any]] = []
    size = 0
    for (node, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        first = firsts.get((node, reason))
        error = {
            "node": node,
            "reason": reason,
            "count": count,
            "first": None if first is None else first.text[:_MOST_TEXT],
            "line": None if first is None or first.line is None else first.line[:_MOST_TEXT],
        }
        size += len(msgspec.json.encode(error)) + 1
        if len(errors) == MOST_ERRORS or size > MOST_ERROR_BYTES:
            break
        errors.append(error)
    return errors
