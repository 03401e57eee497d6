"""The counts of a run, under Kafka's metric names."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.metrics import Histogram, MetricName, dropped_metrics
from headrace.runtime.run_files import Totals

_STREAM, _TASK, _TOPIC = "stream-metrics", "stream-task-metrics", "stream-topic-metrics"
_NODE, _STORE = "stream-processor-node-metrics", "stream-state-metrics"


def run_metrics(totals: Totals, seconds: float) -> dict[MetricName, float]:
    """Return the counts of a run.

    Args:
        totals: The counts of its batches.
        seconds: How long its last batch took.
    """
    metrics: dict[MetricName, float] = {
        MetricName(_STREAM, "batches-total"): totals.batches,
        MetricName(_STREAM, "lost-offsets-total"): totals.lost,
        MetricName(_STREAM, "batch-seconds"): seconds,
    }
    for task, count in totals.processed.items():
        metrics[MetricName(_TASK, "process-total", (("task-id", task),))] = count
        metrics |= dropped_metrics(task, totals.dropped.get(task, {}))
    return metrics | dict(_topic_metrics(totals)) | dict(_node_metrics(totals))


def _topic_metrics(totals: Totals) -> Iterator[tuple[MetricName, float]]:
    read = {topic: sum(each.values()) for topic, each in totals.bytes_consumed.items()}
    for kind, counts in (
        ("records-produced-total", totals.written),
        ("records-refused-total", totals.refused),
        ("bytes-consumed-total", read),
        ("bytes-produced-total", totals.bytes_produced),
    ):
        for topic, count in counts.items():
            yield MetricName(_TOPIC, kind, (("topic", topic),)), count
    for topic, latency in totals.latencies.items():
        name = MetricName(_TOPIC, "record-e2e-latency-avg", (("topic", topic),))
        yield name, 1e3 * _average(latency)


def _node_metrics(totals: Totals) -> Iterator[tuple[MetricName, float]]:
    """Yield the metrics of nodes; as in Kafka, a latency in ns, and a lateness in ms."""
    for subtopology, nodes in totals.samples.items():
        for node, samples in nodes.items():
            tags = (("subtopology", subtopology), ("processor-node-id", node))
            yield MetricName(_NODE, "process-latency-avg", tags), 1e9 * _average(samples.seconds)
            yield MetricName(_NODE, "record-lateness-avg", tags), 1e3 * _average(samples.lateness)
    for node, events in totals.events.items():
        for event, count in events.items():
            yield MetricName(_NODE, f"{event}-total", (("processor-node-id", node),)), count
    for node, tasks in totals.buffers.items():
        for index, kind in enumerate(("suppression-buffer-count", "suppression-buffer-size")):
            count = sum(buffer[index] for buffer in tasks.values())
            yield MetricName(_STORE, kind, (("processor-node-id", node),)), count
    for store, rows in totals.entries.items():
        yield MetricName(_STORE, "estimate-num-keys", (("store", store),)), sum(rows.values())


def _average(histogram: Histogram) -> float:
    return histogram.sum / histogram.total if histogram.total else 0.0
