"""The price of queries for a batch: the part of the runtime that works for snapshots alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.apps.orders import Order, Totals, add
from benchmarks.dataset import PARTITIONS, Dataset, Raw, recent_start
from headrace import Materialized, StreamsBuilder, StreamsConfig, Topology
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


class BatchCosts(NamedTuple):
    """The costs of queries to batches, in milliseconds for each batch."""

    steps: list[float]
    """The steps that work for queries alone and do not depend on the changes."""
    with_changes: list[float]
    """How much longer the batch took than the same batch of a program without a changelog."""


def _topology(source: str, output: str, *, is_queryable: bool) -> Topology:
    """Return a program that writes each total, so that it has transactions in any case."""
    builder = StreamsBuilder()
    orders = builder.stream(source, key=str, value=Order).group_by_key()
    store = Materialized("totals", logging=is_queryable)
    orders.aggregate(Totals, add, materialized=store).to_stream().to(output)
    return builder.build()


class _Program:
    """One program on the runtime in this process, which runs one batch after the other."""

    def __init__(self, address: str, name: str, folder: Path, *, is_queryable: bool) -> None:
        config = StreamsConfig(
            application_id=name,
            bootstrap_servers=address,
            state_dir=folder,
            trigger="available_now",
        )
        self._source = f"{name}-orders"
        self._log = open_log(config)
        output = f"{name}-totals"
        for topic in (self._source, output):
            ensure_topic(self._log, topic, PARTITIONS)
        program = _topology(self._source, output, is_queryable=is_queryable)
        self._query = InProcessQuery(program, config, shuffle_partitions=1)

    def run(self, rows: Sequence[Raw]) -> float:
        """Run a batch of some orders; return how many milliseconds it took."""
        source = self._source
        self._log.append([(source, row.partition, row.timestamp, *row[:2], None) for row in rows])
        began = time.perf_counter()
        self._query.run()
        return (time.perf_counter() - began) * 1_000

    def close(self) -> None:
        self._query.log.close()
        self._log.close()


def batch_costs(address: str, application_id: str, folder: Path, batches: int) -> BatchCosts:
    """Return for each of some batches how many milliseconds longer queries make it.

    The runtime runs in this process, on Kafka: planner, tasks and writer are those of Spark's
    processes. Two steps of a batch work for queries alone: the sink asks for the ends of the
    changelogs before it commits, and the planner makes the record before it plans the next batch.
    A thread writes the record beside the next batch.

    Tasks also collect the changes of their stores, and the sink writes them to the changelogs. A
    second program without a changelog runs the same batches in turn, and the difference has it all.
    """
    timer = _Timer()
    ends = KafkaTopics.uncommitted_ends
    learn = SnapshotWriter._learn  # noqa: SLF001  # a batch waits for this step, and no other
    names = application_id, f"not-{application_id}"
    paying, other = (
        _Program(address, name, folder, is_queryable=name == application_id) for name in names
    )
    orders = Dataset((batches + WARM_UP_BATCHES) * RECORDS, 10_000, recent_start()).raw_orders()
    found = BatchCosts([], [])
    try:
        KafkaTopics.uncommitted_ends = timer.timed(ends)  # type: ignore[method-assign]
        SnapshotWriter._learn = timer.timed(learn)  # type: ignore[method-assign]  # noqa: SLF001
        for number in range(batches + WARM_UP_BATCHES):
            rows = [next(orders) for _ in range(RECORDS)]
            without = other.run(rows) if number % 2 else 0.0
            timer.seconds = 0.0
            took = paying.run(rows)
            found.steps.append(timer.seconds * 1_000)
            found.with_changes.append(took - (without or other.run(rows)))
    finally:
        KafkaTopics.uncommitted_ends = ends  # type: ignore[method-assign]
        SnapshotWriter._learn = learn  # type: ignore[method-assign]  # noqa: SLF001
        paying.close()
        other.close()
    return BatchCosts(*(each[WARM_UP_BATCHES:] for each in found))
