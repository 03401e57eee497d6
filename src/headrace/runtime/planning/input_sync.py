"""A task that merges inputs holds records of one that lie later than what is read of another.

How many that are must not depend on how far apart the inputs lie: inputs that are far ahead are not
read on until the others have caught up. What is held is read, but not processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.brokers.log import TopicPartition
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.plan import ExecutionPlan, PlannedSubtopology


def limit_inputs_ahead(
    plan: ExecutionPlan, reports: Iterable[TaskReport], available: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return how many records there are to read, with none of inputs that others must catch up to.

    Args:
        plan: What runs.
        reports: What tasks did in the last batch.
        available: How many records there are.
    """
    left = dict(available)
    told = [
        (plan.subtopology(_subtopology(report)), report, topic)
        for report in reports
        for topic in report.ahead
    ]
    direct = {
        subtopology.id for subtopology, _, topic in told if topic not in subtopology.repartitions
    }
    for subtopology, report, topic in told:
        # All partitions of its sources feed a repartition: another task may wait for just that.
        if topic in subtopology.repartitions and subtopology.id in direct:
            continue
        partition = int(report.task.rpartition("_")[2])
        ahead = _feeding(plan, subtopology, topic, partition, left)
        inputs = {name.topic for name in left if plan.reader_of(name.topic) is subtopology}
        others = {
            name
            for other in inputs.union(subtopology.repartitions) - {topic}
            for name in _feeding(plan, subtopology, other, partition, left)
        }
        if any(left[name] for name in others - ahead):
            left |= dict.fromkeys(ahead, 0)
    return left if any(left.values()) else dict(available)


def subtopologies_with_buffers(
    plan: ExecutionPlan, layout: CheckpointLayout, waiting: Mapping[str, Mapping[str, int]]
) -> set[int]:
    """Return the subtopologies of whose records some may wait behind a repartition.

    Which those are is not known: what comes through a repartition has no offset of its source.

    Args:
        plan: What runs.
        layout: The tasks there are.
        waiting: The topics and repartitions of which records wait, by the tasks that have told it.
    """
    held: set[int] = set()
    for subtopology in plan.subtopologies:
        if not subtopology.repartitions or not subtopology.has_several_inputs:
            continue
        for partition in range(layout.count_of(subtopology.id)):
            told = waiting.get(f"{subtopology.id}_{partition}")
            for topic in subtopology.repartitions:
                if told is None or topic in told:
                    held |= _bringing(plan, topic)
    return held


def _subtopology(report: TaskReport) -> int:
    return int(report.task.partition("_")[0])


def _feeding(
    plan: ExecutionPlan,
    subtopology: PlannedSubtopology,
    topic: str,
    partition: int,
    available: Iterable[TopicPartition],
) -> set[TopicPartition]:
    """Return the partitions that bring records to an input of a task."""
    if topic not in subtopology.repartitions:
        return {TopicPartition(topic, partition)} & set(available)
    bringing = _bringing(plan, topic)
    return {
        name
        for name in available
        if (reader := plan.reader_of(name.topic)) is not None and reader.id in bringing
    }


def _bringing(plan: ExecutionPlan, repartition: str) -> set[int]:
    """Return the subtopologies whose records come through a repartition."""
    found = set(plan.writers[repartition])
    for number in plan.writers[repartition]:
        found |= plan.upstream_ids(plan.subtopology(number))
    return found
