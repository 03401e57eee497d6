"""What a test driver counted, under Kafka's metric names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.engine.task import Task


class MetricName(NamedTuple):
    """The name of a metric. Its text is Kafka's name: ``dropped-records-total``."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()
    """What the metric is about: ``(("task-id", "0_0"),)``."""

    def __str__(self) -> str:
        return self.name


def task_metrics(tasks: Iterable[Task]) -> dict[MetricName, float]:
    """Return how many records tasks processed and dropped; the latter also by node and reason."""
    metrics: dict[MetricName, float] = {}
    for task in tasks:
        tag = ("task-id", task.id)
        group = "stream-task-metrics"
        metrics[MetricName(group, "process-total", (tag,))] = task.processed
        dropped = sum(task.dropped.values())
        metrics[MetricName(group, "dropped-records-total", (tag,))] = dropped
        for (node, reason), count in sorted(task.dropped.items()):
            tags = (tag, ("processor-node-id", node), ("reason", reason))
            name = MetricName("stream-processor-node-metrics", "dropped-by-reason-total", tags)
            metrics[name] = count
    return metrics
