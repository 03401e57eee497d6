"""The figures of an instance, and of the application whose snapshots it reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headrace.engine.samples import LATENESS_SECONDS, NODE_SECONDS
from headrace.home import work_dir
from headrace.metrics import BATCH_SECONDS, Histogram
from headrace.queries.instance import Instance
from headrace.queries.server.metrics import Metric, Sample, histogram_samples
from headrace.queries.server.served import Served
from headrace.runtime.output.latencies import LATENCY_SECONDS
from headrace.runtime.snapshots import SnapshotRecord

READY = Metric("headrace_ready", "gauge", "Whether all copies of this instance are ready.")
STATE = Metric(
    "headrace_state", "gauge", "1 for the state that this instance has. Kafka: state of a client."
)
NODE_RECORDS = Metric(
    "headrace_node_records_total",
    "counter",
    "Records that source nodes of the run of the leader have processed. Kafka: process-total.",
)
SNAPSHOT = Metric("headrace_snapshot", "gauge", "The number of the newest snapshot.")
SNAPSHOT_AGE = Metric(
    "headrace_snapshot_age_seconds", "gauge", "For how long the newest snapshot may be out of date."
)
MEMBERS = Metric("headrace_instances", "gauge", "Instances of the application that are known.")
CONSUMED = Metric(
    "headrace_records_consumed_total",
    "counter",
    "Offsets of inputs that the newest snapshot reflects, from the begin of the partition. "
    "Kafka: records-consumed-total.",
)
PROCESSED = Metric(
    "headrace_records_processed_total",
    "counter",
    "Records that the run of the leader has processed. Kafka: process-total.",
)
PRODUCED = Metric(
    "headrace_records_produced_total",
    "counter",
    "Records that the run of the leader has written. Kafka: records-produced-total.",
)
ERRORS = Metric(
    "headrace_records_dropped_total",
    "counter",
    "Records that the run of the leader has dropped. Kafka: dropped-records-total.",
)
BATCHES = Metric("headrace_batches_total", "counter", "Batches of the run of the leader.")
FAILED = Metric(
    "headrace_errors_total",
    "counter",
    "Records of the run of the leader that a handler has skipped after an error.",
)
REFUSED = Metric(
    "headrace_records_refused_total",
    "counter",
    "Records that the broker has refused. Kafka: record-error-total.",
)
DEAD_LETTERS = Metric(
    "headrace_dlq_records_total",
    "counter",
    "Dead letters that the run of the leader has written. Kafka: records-produced-total.",
)
LEADER_EPOCH = Metric(
    "headrace_leader_epoch", "gauge", "The leader of the application; each recovery has a new one."
)
TASKS = Metric("headrace_tasks", "gauge", "Tasks that ran in the last batch.")
LAG = Metric(
    "headrace_lag_records", "gauge", "Records of inputs that are not reflected. Kafka: records-lag."
)
RESTORE = Metric(
    "headrace_store_restore_remaining_records",
    "gauge",
    "Changelog records that the copy of this instance lacks. Kafka: restore-remaining-records.",
)
OPEN_ITERATORS = Metric(
    "headrace_open_iterators", "gauge", "Cursors that are open. Kafka: num-open-iterators."
)
DISK_FREE = Metric(
    "headrace_disk_free_ratio", "gauge", "The free part of the disk of `work.dir`, from 0 to 1."
)


class _Figure(NamedTuple):
    """A figure of the snapshot records as a metric."""

    metric: Metric
    labels: tuple[str, ...]
    ends: Sequence[float] = ()
    """The ends of the buckets of a histogram."""


_RUN_FIGURES = {
    "bytes_consumed": _Figure(
        Metric(
            "headrace_bytes_consumed_total",
            "counter",
            "Bytes of keys, values and headers that the run of the leader has read. "
            "Kafka: bytes-consumed-total.",
        ),
        ("topic", "partition"),
    ),
    "bytes_produced": _Figure(
        Metric(
            "headrace_bytes_produced_total",
            "counter",
            "Bytes of keys, values and headers that tasks of the run of the leader have passed to "
            "the sink. Kafka: bytes-produced-total.",
        ),
        ("topic",),
    ),
    "node_seconds": _Figure(
        Metric(
            "headrace_node_seconds",
            "histogram",
            "How long records took from a source node on through all nodes of the subtopology, in "
            "seconds; some records of each batch. Kafka: process-latency.",
        ),
        ("node", "subtopology"),
        NODE_SECONDS,
    ),
    "lateness": _Figure(
        Metric(
            "headrace_record_lateness_seconds",
            "histogram",
            "How far timestamps were behind the stream time of their task, in seconds; some "
            "records of each batch. Kafka: record-lateness.",
        ),
        ("node", "subtopology"),
        LATENESS_SECONDS,
    ),
    "latency": _Figure(
        Metric(
            "headrace_record_e2e_latency_seconds",
            "histogram",
            "The time from the timestamps of output records until they were written, in seconds; "
            "some records of a large batch are measured, and count for the others. "
            "Kafka: record-e2e-latency.",
        ),
        ("topic",),
        LATENCY_SECONDS,
    ),
    "suppression_emits": _Figure(
        Metric(
            "headrace_suppression_emit_total",
            "counter",
            "Changes that suppress has emitted. Kafka: suppression-emit-total.",
        ),
        ("node",),
    ),
    "final_emits": _Figure(
        Metric(
            "headrace_window_final_emit_total",
            "counter",
            "Windows that were emitted because they had closed. Kafka: emit-final-records-total.",
        ),
        ("node",),
    ),
    "buffer_rows": _Figure(
        Metric(
            "headrace_suppression_buffer_rows",
            "gauge",
            "Changes that suppress holds back, in tasks that have run since the start. "
            "Kafka: suppression-buffer-count-avg.",
        ),
        ("node",),
    ),
    "buffer_bytes": _Figure(
        Metric(
            "headrace_suppression_buffer_bytes",
            "gauge",
            "The bytes of the changes that suppress holds back. "
            "Kafka: suppression-buffer-size-avg.",
        ),
        ("node",),
    ),
    "transactions": _Figure(
        Metric(
            "headrace_txn_total",
            "counter",
            "Transactions of finished batches, by their end: commit or abort. "
            "Kafka: txn-commit-time-ns-total, txn-abort-time-ns-total.",
        ),
        ("result",),
    ),
    "phases": _Figure(
        Metric(
            "headrace_batch_seconds",
            "histogram",
            "How long the phases of batches took, in seconds; txn_commit is a part of run. "
            "Kafka: commit-latency, process-latency.",
        ),
        ("phase",),
        BATCH_SECONDS,
    ),
    "restarts": _Figure(
        Metric(
            "headrace_recoveries_total",
            "counter",
            "How often the leader has started its query again after an error.",
        ),
        ("cause",),
    ),
    "entries": _Figure(
        Metric(
            "headrace_store_rows",
            "gauge",
            "Entries of the key-value stores, in tasks that have run since the start. "
            "Kafka: estimate-num-keys.",
        ),
        ("store", "partition"),
    ),
    "changes": _Figure(
        Metric(
            "headrace_store_changes_total",
            "counter",
            "Changes that the run of the leader has written to the changelogs of stores. "
            "Kafka: put-rate, behind the cache.",
        ),
        ("store",),
    ),
}
"""By the names in the snapshot record."""


STATES = ("REBALANCING", "RUNNING", "ERROR")
"""The states of an instance."""
_HANDLED = ("deserialization", "processing", "production")
"""The reasons for dropped records that a handler has skipped after an error."""


def samples_of(served: Served) -> Mapping[Metric, Any]:
    """Return all figures."""
    instance = served.instance
    names = {each.changelog: each.name for each in served.catalog.stores.values()}
    record = instance.newest_record()
    return {
        READY: [Sample(float(instance.is_ready()))],
        STATE: [Sample(float(each == _state(instance)), (("state", each),)) for each in STATES],
        DISK_FREE: _disk_free(work_dir(served.application.config)),
        MEMBERS: [Sample(len(instance.members()))],
        **({} if record is None else _record_samples(served, record)),
        RESTORE: (
            Sample(
                max(0, newest - shown),
                (("store", names.get(name.topic, "")), ("partition", str(name.partition))),
            )
            for name, (shown, newest) in sorted(instance.lags().items())
        ),
        OPEN_ITERATORS: [Sample(instance.snapshots.open_cursors())],
        **served.metrics.samples(),
    }


def _disk_free(folder: Path) -> Iterator[Sample]:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    yield Sample(usage.free / usage.total)


def _state(instance: Instance) -> str:
    """Return Kafka's name of the state that an instance has: whether it can answer."""
    if instance.failure() is not None:
        return "ERROR"
    return "RUNNING" if instance.is_ready() else "REBALANCING"


def _record_samples(served: Served, record: SnapshotRecord) -> dict[Metric, Any]:
    stats = record.stats
    return {
        SNAPSHOT: [Sample(record.snapshot)],
        SNAPSHOT_AGE: [Sample(served.age_ms(record) / 1_000)],
        CONSUMED: (
            Sample(max(0, offset), (("topic", topic), ("partition", str(partition))))
            for topic, offsets in record.position.items()
            for partition, offset in enumerate(offsets)
        ),
        PROCESSED: [Sample(_number(stats.get("processed_total")))],
        NODE_RECORDS: (
            Sample(_number(count), (("node", str(node)), ("subtopology", str(subtopology))))
            for subtopology, nodes in stats.get("sources", {}).items()
            for node, count in nodes.items()
        ),
        PRODUCED: _by_topic(stats.get("written")),
        BATCHES: [Sample(_number(stats.get("batches")))],
        REFUSED: _by_topic(stats.get("refused")),
        DEAD_LETTERS: _dead_letters(served, stats.get("written")),
        LEADER_EPOCH: [Sample(record.leader_epoch)],
        TASKS: [Sample(_number(stats.get("tasks")))],
        ERRORS: _errors(stats, None),
        FAILED: _errors(stats, _HANDLED),
        LAG: (
            Sample(_number(each), (("topic", topic), ("partition", str(partition))))
            for topic, lags in stats.get("lag", {}).items()
            for partition, each in enumerate(lags)
        ),
        **_run_samples(stats.get("figures")),
    }


def _errors(stats: Mapping[str, Any], reasons: tuple[str, ...] | None) -> Iterator[Sample]:
    """Yield the dropped records by node and reason; only some reasons if they are given."""
    for each in stats.get("errors", []):
        node, reason = str(each.get("node")), str(each.get("reason"))
        if reasons is None or reason in reasons:
            yield Sample(_number(each.get("count")), (("node", node), ("reason", reason)))


def _dead_letters(served: Served, written: Any) -> Iterator[Sample]:
    topic = served.application.config.errors_dead_letter_queue_topic_name
    if topic is not None:
        yield Sample(_number((written or {}).get(topic)), (("topic", topic),))


def _by_topic(counts: Any) -> Iterator[Sample]:
    for topic, count in (counts or {}).items():
        yield Sample(_number(count), (("topic", str(topic)),))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _run_samples(figures: Any) -> Mapping[Metric, list[Sample]]:
    """Return the metrics of a run; those without a series have no sample.

    Args:
        figures: The figures of a snapshot record. Unreadable ones are left out.
    """
    found = figures if isinstance(figures, dict) else {}
    return {
        figure.metric: [*_series_samples(figure, found.get(name))]
        for name, figure in _RUN_FIGURES.items()
    }


def _series_samples(figure: _Figure, series: Any) -> Iterator[Sample]:
    for each in series or ():
        *values, value = each
        labels = tuple(zip(figure.labels, map(str, values), strict=False))
        if not figure.ends:
            yield Sample(float(value), labels)
            continue
        histogram = msgspec.convert(value, Histogram)
        if len(histogram.counts) == len(figure.ends) + 1:
            yield from histogram_samples(histogram, figure.ends, labels)
