"""The counts of a test driver, under Kafka's metric names."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.engine.task import Task
from headrace.metrics import MetricName, dropped_metrics


def task_metrics(tasks: Iterable[Task]) -> dict[MetricName, float]:
    """Return how many records tasks processed and dropped; the latter also by node and reason."""
    metrics: dict[MetricName, float] = {}
    for task in tasks:
        name = MetricName("stream-task-metrics", "process-total", (("task-id", task.id),))
        metrics[name] = task.processed
        metrics |= dropped_metrics(task.id, task.dropped_by_node())
    return metrics
