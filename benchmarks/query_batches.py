"""What a batch pays for queries: the part of the runtime that works for snapshot records alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from benchmarks.apps.queried_totals import topology
from benchmarks.dataset import PARTITIONS, Dataset, recent_start
from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.kafka.topics import KafkaTopics
from headrace.runtime.in_process import InProcessQuery
from headrace.runtime.internal_topics import ensure_topic
from headrace.runtime.planning.snapshot_writer import SnapshotWriter

WARM_UP_BATCHES = 10
RECORDS = 500


class _Timer:
    """Adds up how long some methods take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that is timed."""

        @wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - began

        return call


def batch_costs(address: str, application_id: str, folder: Path, batches: int) -> list[float]:
    """Return for each of some batches how many milliseconds longer queries make it.

    The runtime runs in this process, on Kafka: planner, tasks and writer are those of Spark's
    processes. Two steps of a batch work for queries alone: the sink asks for the ends of the
    changelogs before it commits, and the planner makes the record before it plans the next batch.
    A thread writes the record beside the next batch.
    """
    config = StreamsConfig(
        application_id=application_id,
        bootstrap_servers=address,
        state_dir=folder,
        trigger="available_now",
    )
    source = f"{application_id}-orders"
    log = open_log(config)
    ensure_topic(log, source, PARTITIONS)
    timer = _Timer()
    ends = KafkaTopics.uncommitted_ends
    learn = SnapshotWriter._learn  # noqa: SLF001  # a batch waits for this step, and no other
    query = InProcessQuery(topology(source), config, shuffle_partitions=1)
    orders = Dataset((batches + WARM_UP_BATCHES) * RECORDS, 10_000, recent_start()).raw_orders()
    costs = []
    try:
        KafkaTopics.uncommitted_ends = timer.timed(ends)  # type: ignore[method-assign]
        SnapshotWriter._learn = timer.timed(learn)  # type: ignore[method-assign]  # noqa: SLF001
        for _ in range(batches + WARM_UP_BATCHES):
            rows = [next(orders) for _ in range(RECORDS)]
            log.append([(source, row.partition, row.timestamp, *row[:2], None) for row in rows])
            query.run()
            costs.append(timer.seconds * 1_000)
            timer.seconds = 0.0
    finally:
        KafkaTopics.uncommitted_ends = ends  # type: ignore[method-assign]
        SnapshotWriter._learn = learn  # type: ignore[method-assign]  # noqa: SLF001
        query.log.close()
        log.close()
    return costs[WARM_UP_BATCHES:]
