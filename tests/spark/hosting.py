"""An application on Spark as a host of topologies, step by step."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from headrace import ConsumerRecord, KafkaStreams, StreamsConfig, Topology
from headrace.brokers import open_log
from headrace.brokers.log import RawRecord, TopicPartition
from headrace.metrics import MetricName
from headrace.runtime.checkpoint.layout import CheckpointLayout, read_layout
from headrace.runtime.in_process import Blobs
from headrace.runtime.planning.input_topics import matching_topics
from headrace.runtime.run_files import BatchResult, Control, PlannerStatus
from headrace.spark.runner import Run
from headrace.spark.session import log_of_java
from tests.runtime.in_process import store_in
from tests.spark.stored import blobs_in
from tests.stacks import stacks_below
from tests.waiting import PATIENTLY, await_that

_PATIENCE = 500
"""How many seconds one round may take on a busy machine."""


class SparkHost:
    """Runs a topology as an application; a ``with`` block starts and closes it.

    Its stores can be seen after the block.

    Args:
        topology: The topology to run.
        topics: The topics it reads and writes.
        config: With the place of the topics and of the checkpoint.
        partitions: How many partitions topics have.
    """

    def __init__(
        self,
        topology: Topology,
        topics: Iterable[str],
        config: StreamsConfig,
        *,
        partitions: int = 1,
    ) -> None:
        self._partitions = partitions
        self._log = open_log(config)
        for topic in topics:
            self._log.create_topic(topic, partitions=partitions)
        self._streams = KafkaStreams(topology, config)
        self._read: dict[TopicPartition, int] = {}
        self._seen: Counter[str] = Counter()
        self._own: set[tuple[str, int, int]] = set()
        self._clock = 0

    def __enter__(self) -> SparkHost:
        self._streams.pause()
        self._streams.start()
        run = self._streams._run  # tests move the clock
        assert run is not None, "started"
        self._run: Run = run
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self._streams.state().has_ended():
                self._streams.close(PATIENTLY)
        finally:
            self._log.close()

    def run(self, records: Sequence[RawRecord], clock: int) -> None:
        """Write records to the log, and wait until there is nothing to do."""
        # One batch takes all of them: a topic's records are in it, or none are.
        self._streams.pause()
        placed = self._log.append(records)
        self._own.update((each.topic, each.partition, each.offset) for each in placed)
        self._clock = clock
        self._run.set_clock(clock)
        self._streams.resume()
        give_up = time.monotonic() + _PATIENCE
        while not self._is_quiet(clock):
            if self._streams.state().has_ended():
                self._streams.await_termination()
                return
            assert time.monotonic() < give_up, self._what_is_known()
            time.sleep(0.01)

    def _what_is_known(self) -> str:
        """Return the status, the last log lines and the stacks of a query without progress."""
        run_files, query = self._run.run_files, self._run._query
        planner, done = run_files.read(PlannerStatus), run_files.read(BatchResult)
        unread, ago = self._unread(planner), time.time() - run_files.written_at(PlannerStatus)
        status = query.status
        log = log_of_java(self._run._home.spark_log).read_text(errors="replace")
        return "\n".join(
            [
                "the query makes no progress",
                f"state {self._streams.state()}, {run_files.read(Control)}, query {status}",
                f"planner looked {ago:.1f} s ago; not read: {unread}; it knows {planner.ends}",
                f"last batch {done.batch}; due {[report.next_due for report in done.reports]}",
                f"last of Spark's log: {log[-3_000:]}",
                stacks_below(os.getpid()),
            ]
        )

    def _is_quiet(self, clock: int) -> bool:
        note = self._run.run_files.read(PlannerStatus)
        if not note.offsets:
            has_looked = note.limit > 0
            return has_looked and not self._reads_a_topic()
        if self._unread(note):
            return False
        if not any(subtopology.runs_every_batch for subtopology in self._run.plan.subtopologies):
            return True
        done = self._run.run_files.read(BatchResult)
        due = [report.next_due for report in done.reports if report.next_due is not None]
        return done.batch >= 0 and all(each > clock for each in due)

    def _reads_a_topic(self) -> bool:
        """Return whether there is a topic to read; no topic may match a pattern."""
        plan = self._run.plan
        return any(subtopology.topics for subtopology in plan.subtopologies) or bool(
            matching_topics(plan, self._log)
        )

    def _unread(self, note: PlannerStatus) -> dict[TopicPartition, tuple[int, int]]:
        """Return how far partitions are read that are not read to their ends, and those."""
        read = {
            TopicPartition(topic, partition): offset
            for topic, offsets in note.offsets.items()
            for partition, offset in enumerate(offsets)
        }
        ends = self._log.end_offsets(list(read))
        return {name: (read[name], end) for name, end in ends.items() if read[name] < end}

    def written(self, topics: Iterable[str]) -> Iterator[ConsumerRecord]:
        """Yield what is new in topics.

        Waits until what was written can be read: Kafka shows a transaction shortly after its end.
        """
        names, new = list(topics), list[ConsumerRecord]()

        def is_all_there() -> bool:
            for record in self._new(names):
                self._seen[record.topic] += 1
                new.append(record)
            return all(self._seen[name] >= count for name, count in self._counted(names))

        def seen() -> str:
            counted = self._counted(names)
            return ", ".join(
                f"{self._seen[name]} of {count:g} in {name!r}" for name, count in counted
            )

        await_that(is_all_there, f"all records that were written to {names}", found=seen)
        yield from new

    def _counted(self, topics: list[str]) -> Iterator[tuple[str, float]]:
        metrics = self._streams.metrics()
        for topic in topics:
            tags = (("topic", topic),)
            name = MetricName("stream-topic-metrics", "records-produced-total", tags)
            yield topic, metrics.get(name, 0)

    def _new(self, topics: list[str]) -> Iterator[ConsumerRecord]:
        names = [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in range(self._partitions)
        ]
        for name, end in self._log.end_offsets(names).items():
            start = self._read.get(name, 0)
            if end > start:
                self._read[name] = end
                for records in self._log.read(name, start, end):
                    yield from (each for each in records if each[:3] not in self._own)

    def dropped(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return how many records were dropped."""
        return self._run.run_files.read(BatchResult).totals.dropped

    def store(self, name: str) -> Any:
        """Return a store when the application has ended; before, Spark's processes have it."""
        if not self._streams.state().has_ended():
            return None
        blobs, layout = self._left
        return store_in(blobs, self._run._shipped.program(), layout, name, self._clock)

    @cached_property
    def _left(self) -> tuple[Blobs, CheckpointLayout]:
        """The state and the layout after the run, which take a second to read."""
        run = self._run
        layout = read_layout(run.plan.application_id, run.checkpoint.folder)
        assert layout is not None, "it ran"
        return blobs_in(run.checkpoint.folder, run._session, run.plan.stages), layout
