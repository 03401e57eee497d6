"""Splits: what each Spark task reads of a batch.

Run `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.runtime.batches import Batch, BatchBoundary, Range, lost_ranges, ranges
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.exchange.packing import Split, TaskCall
from headrace.runtime.plan import (
    GLOBAL_SUBTOPOLOGY,
    GLOBAL_TASK,
    ExecutionPlan,
    PlannedSubtopology,
)

_SMALL_BATCH = 20_000
"""One Spark task reads a batch of at most so many records."""


def split_batch(
    plan: ExecutionPlan,
    layout: CheckpointLayout,
    batch: Batch,
    start: BatchBoundary,
    end: BatchBoundary,
) -> list[Split]:
    """Return the splits of a batch. They depend on its boundaries and the layout alone."""
    offset_ranges = ranges(start, end)
    calls, lost = tuple(_task_calls(plan, layout, end)), tuple(lost_ranges(start, end))
    records = sum(offset_range.end - offset_range.start for offset_range in offset_ranges)
    if records <= _SMALL_BATCH or len(offset_ranges) == 1:
        return [Split(batch, tuple(offset_ranges), calls, lost)]
    bins: list[list[Range]] = [[] for _ in range(layout.shuffle_partitions)]
    sizes = [0] * len(bins)
    for offset_range in sorted(offset_ranges, key=lambda each: each.start - each.end):
        smallest = sizes.index(min(sizes))
        bins[smallest].append(offset_range)
        sizes[smallest] += offset_range.end - offset_range.start
    splits = [Split(batch, tuple(bin_)) for bin_ in bins if bin_]
    splits[0] = Split(batch, splits[0].ranges, calls, lost)
    return splits


def _task_calls(
    plan: ExecutionPlan, layout: CheckpointLayout, end: BatchBoundary
) -> Iterator[TaskCall]:
    """Yield the calls of tasks that run without records, or whose inputs have more."""
    for subtopology in plan.subtopologies:
        if subtopology.stage == 0:
            continue
        is_called = subtopology.runs_every_batch or end.calls_all_tasks
        if not (is_called or subtopology.has_several_inputs):
            continue
        upstream_has_more = _upstream_has_more(plan, subtopology, end)
        for partition in range(layout.count_of(subtopology.id)):
            with_more = [
                (topic, partition)
                for topic, partitions in end.partitions_with_more.items()
                if partition in partitions and plan.reader_of(topic) is subtopology
            ]
            if upstream_has_more:
                with_more += [(topic, -1) for topic in subtopology.repartitions]
            if with_more or is_called:
                number = layout.placement(subtopology.id, partition).task_number
                yield TaskCall(subtopology.id, partition, number, with_more)
    if end.calls_all_tasks and GLOBAL_TASK in layout.tasks:
        number = layout.tasks[GLOBAL_TASK].task_number
        yield TaskCall(GLOBAL_SUBTOPOLOGY, 0, number, [])


def _upstream_has_more(
    plan: ExecutionPlan, subtopology: PlannedSubtopology, end: BatchBoundary
) -> bool:
    upstream = plan.upstream_ids(subtopology)
    readers = (plan.reader_of(topic) for topic, some in end.partitions_with_more.items() if some)
    return any(reader is not None and reader.id in upstream for reader in readers)
