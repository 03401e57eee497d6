"""A planner on an embedded log, without a query; and fakes for the objects that it uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Unpack, cast

import pytest

from headrace import (
    Processor,
    Record,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicLog, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.config import Settings
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.layout import CheckpointLayout, new_layout
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.plan import ExecutionPlan, plan_topology
from headrace.runtime.planning.planner import Planner
from headrace.runtime.planning.startup import prepare
from headrace.runtime.planning.task_counts import task_counts
from headrace.runtime.run_files import BatchResult, Control, RunFiles
from headrace.spark.batch_log import spark_checkpoint
from tests.application_home import embedded_home
from tests.runtime.in_process import create_leader_topic, write_query_id


class Planning:
    """The topics, the checkpoint and the planner of one application."""

    def __init__(self, topology: Topology, folder: Path, **settings: Unpack[Settings]) -> None:
        settings.setdefault("application_id", "app")
        settings.setdefault("trigger", "available_now")
        settings["state_dir"] = folder
        self.config = StreamsConfig(**settings)
        self.checkpoint = embedded_home(folder).checkpoint
        self.spark_checkpoint = spark_checkpoint("app", self.checkpoint)
        self.plan = plan_topology(topology, self.config)
        self.log: Broker = open_log(self.config)
        (folder / "run").mkdir(exist_ok=True)
        self.run_files = RunFiles(folder / "run")

    def layout(self) -> CheckpointLayout:
        """Prepare the checkpoint, or read it."""
        made = prepare(
            self.plan, self.config, self.log, self.spark_checkpoint, lambda n: min(n, 2)
        )[0]
        write_query_id(self.checkpoint)
        return made

    def planner(self, *, stages_run_once: bool = True) -> Planner:
        """Return a planner, as a start of the application makes one."""
        create_leader_topic(self.log, self.config)
        return Planner(
            self.plan,
            self.config,
            self.log,
            self.layout(),
            self.spark_checkpoint,
            self.run_files,
            leader_epoch=0,
            stages_run_once=stages_run_once,
        )

    def set_clock(self, clock: int) -> None:
        """Set the time of day, in milliseconds."""
        self.run_files.write(Control(clock=clock))

    def end_batch(self, number: int, *reports: TaskReport) -> None:
        """Write the run file that the sink writes at the end of a batch."""
        self.run_files.write(BatchResult(number, list(reports)))


def create(log: Broker, **topics: int) -> None:
    """Create topics; each name comes with its number of partitions."""
    for topic, partitions in topics.items():
        log.create_topic(topic, partitions=partitions)


def append(
    log: Broker, topic: str, count: int, *, partition: int = 0, timestamps: Iterable[int] = ()
) -> None:
    """Append ``count`` records to a partition."""
    times = list(timestamps) or range(1, count + 1)
    log.append(
        [(topic, partition, time, b"k", b"%d" % time, None) for time in islice(times, count)]
    )


def name(topic: str, partition: int = 0) -> TopicPartition:
    """Return the name of a partition."""
    return TopicPartition(topic, partition)


class Idle(Processor[str, int, str, int]):
    def process(self, record: Record[str, int]) -> None: ...


Build = Callable[[StreamsBuilder], object]


def copying(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=int).to("out")


def counting(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=int).group_by_key().count().to_stream().to("out")


def joining(builder: StreamsBuilder) -> None:
    table = builder.table("table", key=str, value=int)
    builder.stream("in", key=str, value=int).join(table, lambda a, b: a + b, value=int).to("out")


def joining_behind_a_repartition(builder: StreamsBuilder) -> None:
    table = builder.table("table", key=str, value=int)
    stream = builder.stream("in", key=str, value=int).repartition(name="first")
    stream.join(table, lambda a, b: a + b, value=int).to("out")


def joining_behind_two_repartitions(builder: StreamsBuilder) -> None:
    first = builder.table("first-table", key=str, value=int)
    second = builder.table("second-table", key=str, value=int)
    stream = builder.stream("in", key=str, value=int).repartition(name="first")
    joined = stream.join(first, lambda a, b: a + b, value=int).repartition(name="second")
    joined.join(second, lambda a, b: a + b, value=int).to("out")


def scheduling(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=int).process(Idle, key=str, value=int).to("out")


def by_pattern(builder: StreamsBuilder) -> None:
    builder.stream(re.compile("log-.*"), key=str, value=int).to("out")


def by_two_patterns(builder: StreamsBuilder) -> None:
    builder.stream(re.compile("a.*"), key=str, value=int).to("out")
    builder.stream(re.compile(".*b"), key=str, value=int).to("out2")


def by_two_patterns_together(builder: StreamsBuilder) -> None:
    other = builder.stream(re.compile(".*b"), key=str, value=int)
    builder.stream(re.compile("a.*"), key=str, value=int).merge(other).to("out")


def with_global_table(builder: StreamsBuilder) -> None:
    rates = builder.global_table("rates", key=str, value=int)
    joined = builder.stream("in", key=str, value=int).join(
        rates, lambda v, r: v * r, on=lambda k, _v: k, value=int
    )
    joined.to("out")


def planning(build: Build, folder: Path, topics: dict[str, int], **settings: Any) -> Planning:
    builder = StreamsBuilder()
    build(builder)
    made = Planning(builder.build(), folder, **settings)
    create(made.log, **topics)
    made.set_clock(1_000)
    return made


def small_batches(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    monkeypatch.setattr("headrace.runtime.planning.admission.FIRST_RECORDS", records)
    monkeypatch.setattr("headrace.runtime.planning.admission.FIRST_TABLE_RECORDS", records)
    monkeypatch.setattr("headrace.runtime.planning.admission.MIN_RECORDS", 1)


def run(planner: Planner, start: BatchBoundary) -> list[BatchBoundary]:
    """Plan batches until there are no more records; return their ends."""
    ends = []
    while (end := planner.next(start)) is not start:
        ends.append(end)
        start = end
    return ends


def refresh_at_next_call(planner: Planner) -> None:
    """Make the planner look up topics and partitions at its next call, not after 5 s."""
    planner._bounds._refreshed_at = float("-inf")


class FakeTime:
    """The module `time` for one module under test; only a test moves its clocks."""

    def __init__(self) -> None:
        self.now = 1_000_060.0
        """The time of day, in seconds: a full minute and 40 s."""
        self.ticks = 50.0

    def monotonic(self) -> float:
        return self.ticks

    def time(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1_000_000_000)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self.now += seconds
        self.ticks += seconds


class OffsetLog:
    """A log that has offsets only: no records, no broker.

    Args:
        ends: The end offsets of each topic's partitions.
    """

    def __init__(self, ends: Mapping[str, Sequence[int]]) -> None:
        self.ends = {topic: list(offsets) for topic, offsets in ends.items()}
        self.log_starts: dict[TopicPartition, int] = {}
        """The log start offsets that are not 0."""

    @property
    def as_log(self) -> TopicLog:
        """The same object, with the type that callers ask for."""
        return cast("TopicLog", self)

    def list_topics(self) -> list[str]:
        return sorted(self.ends)

    def partition_count(self, topic: str) -> int:
        return len(self.ends[topic])

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.ends[each.topic][each.partition] for each in partitions}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.log_starts.get(each, 0) for each in partitions}


def execution_plan(build: Build) -> ExecutionPlan:
    """Return the plan of a program, without a broker."""
    builder = StreamsBuilder()
    build(builder)
    return plan_topology(builder.build(), StreamsConfig(application_id="app"))


def layout_of(plan: ExecutionPlan, partitions: Mapping[str, int]) -> CheckpointLayout:
    """Return the layout of a program over two shuffle partitions.

    Args:
        plan: The plan of the program.
        partitions: How many partitions each topic has.
    """
    counts, repartitions = task_counts(
        plan,
        partitions.__getitem__,
        lambda reader: [
            topic
            for topic in partitions
            if topic not in reader.topics and plan.reader_of(topic) is reader
        ],
    )
    return new_layout(plan, counts, repartitions, shuffle_partitions=2)
