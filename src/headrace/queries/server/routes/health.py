"""Probes, and figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from headrace.queries.instance import Instance
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.metrics import (
    MOST_SERIES,
    QUERY_SECONDS,
    QUERY_TOTAL,
    Metric,
    Sample,
    metrics_text,
)
from headrace.queries.server.routes.stores import Shared
from headrace.queries.server.served import Served
from headrace.runtime.snapshots import SnapshotRecord

router = APIRouter(tags=["health"])

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
    "Records that the run of the leader has processed. Kafka: records-consumed-total.",
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
BATCH_SECONDS = Metric(
    "headrace_batch_seconds", "gauge", "How long the last batch took. Kafka: process-latency-avg."
)
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

ALL = (
    READY, STATE, NODE_RECORDS, SNAPSHOT, SNAPSHOT_AGE, MEMBERS, CONSUMED, PRODUCED, ERRORS,
    BATCHES, BATCH_SECONDS, LAG, RESTORE, OPEN_ITERATORS, QUERY_TOTAL, QUERY_SECONDS,
)  # fmt: skip
"""Every metric that there is."""
STATES = ("REBALANCING", "RUNNING", "ERROR")
"""The states of an instance."""


@router.get("/health/live", summary="Whether the process answers")
async def live() -> Response:
    """Return 200."""
    return PlainTextResponse("live\n")


@router.get("/health/ready", summary="Whether the copies of this instance are ready")
async def ready(served: Shared) -> Response:
    """Return 200 if they are, else 503."""
    problem = served.instance.problem()
    if problem is not None:
        raise problem
    if not served.instance.is_ready():
        msg = "Not all copies of this instance are ready."
        raise QueryProblemError(ProblemCode.STORE_NOT_READY, msg, retry_after_ms=1_000)
    return PlainTextResponse("ready\n")


@router.get("/metrics", summary="Figures for Prometheus")
async def metrics(served: Shared) -> Response:
    """Return the figures in Prometheus' text format."""
    labels = (("app_id", served.catalog.application_id), ("topology", served.catalog.layout.digest))
    found = {metric: [*samples][:MOST_SERIES] for metric, samples in _samples(served).items()}
    text = metrics_text(found, labels)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _samples(served: Served) -> Mapping[Metric, Any]:
    instance = served.instance
    names = {each.changelog: each.name for each in served.catalog.stores.values()}
    record = instance.newest_record()
    return {
        READY: [Sample(float(instance.is_ready()))],
        STATE: [Sample(float(each == _state(instance)), (("state", each),)) for each in STATES],
        MEMBERS: [Sample(len(instance.members()))],
        **({} if record is None else _record_samples(served, record)),
        RESTORE: (
            Sample(
                max(0, newest - shown),
                (("store", names.get(name.topic, "")), ("partition", str(name.partition))),
            )
            for name, (shown, newest) in sorted(instance.lags().items())
        ),
        OPEN_ITERATORS: [Sample(sum(each.cursors for each in [*instance.snapshots]))],
        **served.metrics.samples(),
    }


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
        CONSUMED: [Sample(_number(stats.get("processed_total")))],
        NODE_RECORDS: (
            Sample(_number(count), (("node", str(node)), ("subtopology", str(subtopology))))
            for subtopology, nodes in stats.get("sources", {}).items()
            for node, count in nodes.items()
        ),
        PRODUCED: _by_topic(stats.get("written")),
        BATCHES: [Sample(_number(stats.get("batches")))],
        BATCH_SECONDS: [Sample(_number(stats.get("seconds")))],
        ERRORS: (
            Sample(
                _number(each.get("count")),
                (("node", str(each.get("node"))), ("reason", str(each.get("reason")))),
            )
            for each in stats.get("errors", [])
        ),
        LAG: (
            Sample(_number(each), (("topic", topic), ("partition", str(partition))))
            for topic, lags in stats.get("lag", {}).items()
            for partition, each in enumerate(lags)
        ),
    }


def _by_topic(counts: Any) -> Iterator[Sample]:
    for topic, count in (counts or {}).items():
        yield Sample(_number(count), (("topic", str(topic)),))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
