"""Inputs that are far ahead of others of their task are not read on until those have caught up.

A task that merges inputs holds records of one that lie later than what is read of another. How
many that are must not depend on how far apart the inputs lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.brokers.log import TopicPartition
from headrace.spark.planning.plan import PlannedPart, SparkPlan
from headrace.spark.tasks.parcels import TaskReport


def without_those_ahead(
    plan: SparkPlan, reports: Iterable[TaskReport], available: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return how many records there are to read, with none of inputs that others must catch up to.

    Args:
        plan: What runs.
        reports: What tasks did in the last batch.
        available: How many records there are.
    """
    left = dict(available)
    told = [
        (plan.part(_part(report)), report, topic) for report in reports for topic in report.ahead
    ]
    direct = {part.id for part, _, topic in told if topic not in part.repartitions}
    for part, report, topic in told:
        # All partitions of its sources feed a repartition: another task may wait for just that.
        if topic in part.repartitions and part.id in direct:
            continue
        partition = int(report.task.rpartition("_")[2])
        ahead = _feeding(plan, part, topic, partition, left)
        inputs = {name.topic for name in left if plan.reader_of(name.topic) is part}
        others = {
            name
            for other in inputs.union(part.repartitions) - {topic}
            for name in _feeding(plan, part, other, partition, left)
        }
        if any(left[name] for name in others - ahead):
            left |= dict.fromkeys(ahead, 0)
    return left if any(left.values()) else dict(available)


def _part(report: TaskReport) -> int:
    return int(report.task.partition("_")[0])


def _feeding(
    plan: SparkPlan,
    part: PlannedPart,
    topic: str,
    partition: int,
    available: Iterable[TopicPartition],
) -> set[TopicPartition]:
    """Return the partitions that bring records to an input of a task."""
    if topic not in part.repartitions:
        return {TopicPartition(topic, partition)} & set(available)
    writers = set(plan.writers[topic])
    for number in plan.writers[topic]:
        writers |= plan.parts_upstream(plan.part(number))
    return {
        name
        for name in available
        if (reader := plan.reader_of(name.topic)) is not None and reader.id in writers
    }
