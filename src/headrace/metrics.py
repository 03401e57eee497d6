"""The names of metrics, which are Kafka's where Kafka has one."""

from __future__ import annotations

from typing import NamedTuple


class MetricName(NamedTuple):
    """The name of a metric. Its text is Kafka's name: ``dropped-records-total``."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()
    """The subject of the metric: ``(("task-id", "0_0"),)``."""

    def __str__(self) -> str:
        return self.name


def dropped_metrics(task: str, dropped: dict[str, dict[str, int]]) -> dict[MetricName, float]:
    """Return how many records a task dropped: all together, and by node and reason."""
    tag = ("task-id", task)
    total = sum(sum(counts.values()) for counts in dropped.values())
    name = MetricName("stream-task-metrics", "dropped-records-total", (tag,))
    metrics: dict[MetricName, float] = {name: total}
    for node, counts in sorted(dropped.items()):
        for reason, count in sorted(counts.items()):
            tags = (tag, ("processor-node-id", node), ("reason", reason))
            name = MetricName("stream-processor-node-metrics", "dropped-by-reason-total", tags)
            metrics[name] = count
    return metrics
