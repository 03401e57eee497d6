"""The figures for people in a snapshot record: work, lag, errors, times and bytes of the run.

`run_figures` returns lists of series. A series is its label values, then a number; of a histogram
it is the counts of the buckets, and the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from headrace.engine.task import SUPPRESSION_EMIT
from headrace.metrics import Histogram
from headrace.processors.window_close import FINAL_EMIT
from headrace.runtime.run_files import BatchResult, PlannerStatus, Totals
from headrace.runtime.snapshots import Offsets

MOST_ERRORS = 50
"""How many kinds of errors a record has, a kind being a step and a reason."""
MOST_ERROR_BYTES = 16 * 1024
MOST_SOURCES = 100
"""How many source nodes a record has."""
_MOST_TEXT = 300

MOST_SERIES = 50
"""How many series a figure has. The rest is one, whose labels are `OTHER`."""
MOST_FIGURE_BYTES = 16 * 1024
"""How large all figures are as JSON. If they are larger, each has fewer series."""
OTHER = "other"

Value: TypeAlias = int | Histogram
Figure: TypeAlias = dict[tuple[str, ...], Value]
"""Values by label values."""


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


def run_figures(
    totals: Totals,
    phases: Mapping[str, Histogram],
    restarts: Mapping[str, int],
    changelogs: Mapping[str, str],
) -> dict[str, list[Any]]:
    """Return the figures of a run, in the limits of a snapshot record.

    Args:
        totals: The counts of its batches.
        phases: How long the phases of its batches took.
        restarts: How often its query was started again, by cause.
        changelogs: The store of each changelog.
    """
    figures = _figures(totals, phases, restarts, changelogs)
    most = MOST_SERIES
    while True:
        limited = {name: _limited(figure, most) for name, figure in figures.items() if figure}
        if most == 1 or len(msgspec.json.encode(limited)) <= MOST_FIGURE_BYTES:
            return limited
        most //= 2


def _figures(
    totals: Totals,
    phases: Mapping[str, Histogram],
    restarts: Mapping[str, int],
    changelogs: Mapping[str, str],
) -> dict[str, Figure]:
    samples = {
        (node, subtopology): each
        for subtopology, nodes in totals.samples.items()
        for node, each in nodes.items()
    }
    commits = {"txn_commit": totals.commit_seconds} if totals.commit_seconds.counts else {}
    return {
        "bytes_consumed": {
            (topic, str(partition)): count
            for topic, partitions in totals.bytes_consumed.items()
            for partition, count in partitions.items()
        },
        "bytes_produced": _by_name(totals.bytes_produced),
        "node_seconds": {name: each.seconds for name, each in samples.items()},
        "lateness": {name: each.lateness for name, each in samples.items()},
        "latency": _by_name(totals.latencies),
        "suppression_emits": _events(totals, SUPPRESSION_EMIT),
        "final_emits": _events(totals, FINAL_EMIT),
        "buffer_rows": _buffers(totals, 0),
        "buffer_bytes": _buffers(totals, 1),
        "transactions": _by_name(totals.transactions),
        "phases": _by_name({**phases, **commits}),
        "restarts": _by_name(restarts),
        "entries": {
            (store, task.rpartition("_")[2]): count
            for store, tasks in totals.entries.items()
            for task, count in tasks.items()
        },
        "changes": {
            (changelogs.get(topic, topic),): count for topic, count in totals.changes.items()
        },
    }


def _by_name(values: Mapping[str, Value]) -> Figure:
    return {(name,): value for name, value in values.items()}


def _events(totals: Totals, event: str) -> Figure:
    return {(node,): events[event] for node, events in totals.events.items() if event in events}


def _buffers(totals: Totals, index: int) -> Figure:
    return {
        (node,): sum(buffer[index] for buffer in tasks.values())
        for node, tasks in totals.buffers.items()
    }


def _limited(figure: Figure, most: int) -> list[Any]:
    """Return at most so many series: of partitions those of a topic together, then the rest."""
    if len(figure) > most:
        figure = _grouped(figure, lambda labels: (labels[0], *(OTHER,) * (len(labels) - 1)))
    if len(figure) > most:
        kept = {*sorted(figure)[: most - 1]}
        figure = _grouped(
            figure, lambda labels: labels if labels in kept else (OTHER,) * len(labels)
        )
    return [
        [*labels, _plain(value)]
        for labels, value in sorted(figure.items(), key=lambda each: each[0])
    ]


def _plain(value: Value) -> Any:
    """Return a value that stays as it is: histograms grow."""
    if isinstance(value, Histogram):
        return [list(value.counts), round(value.sum, 6)]
    return value


def _grouped(figure: Figure, group_of: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Figure:
    groups: dict[tuple[str, ...], list[Value]] = {}
    for labels, value in figure.items():
        groups.setdefault(group_of(labels), []).append(value)
    return {labels: _sum(values) for labels, values in groups.items()}


def _sum(values: Iterable[Value]) -> Value:
    total = 0
    histogram = Histogram()
    for value in values:
        if isinstance(value, Histogram):
            histogram.merge(value)
        else:
            total += value
    return histogram if histogram.counts else total
