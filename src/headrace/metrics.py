"""The names of metrics, which are Kafka's where Kafka has one, and histograms."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

import msgspec


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


BATCH_SECONDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
)
"""The upper ends of the buckets of the times of a batch, in seconds."""


class Histogram(msgspec.Struct, array_like=True):
    """The number of values in each bucket, and their sum. Its owner knows the buckets."""

    counts: list[int] = []
    """The values up to the end of each bucket and above the one before; last the values above all
    ends. Empty before the first value."""
    sum: float = 0.0

    def add(self, values: Iterable[float], ends: Sequence[float], count: int = 1) -> None:
        """Count values.

        Args:
            values: The values.
            ends: The upper ends of the buckets, ascending; always the same.
            count: For how many values each of them stands.
        """
        ordered = sorted(values)
        if not self.counts:
            self.counts = [0] * (len(ends) + 1)
        before = 0
        for bucket, end in enumerate((*ends, inf)):
            # Not bucket by bucket of each value: this takes a fifth of the time.
            found = bisect_right(ordered, end, before)
            self.counts[bucket] += (found - before) * count
            before = found
        self.sum += sum(ordered) * count

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram with the same buckets."""
        pairs = zip(self.counts or [0] * len(other.counts), other.counts, strict=False)
        self.counts = [own + more for own, more in pairs] if other.counts else self.counts
        self.sum += other.sum

    @property
    def total(self) -> int:
        """Return how many values there are."""
        return sum(self.counts)
