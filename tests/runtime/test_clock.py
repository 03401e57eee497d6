"""Schedules on the runtime: both clocks, with and without records, over batches and restarts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    WallclockTimestampExtractor,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from tests.runtime.in_process import InProcessQuery

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME
_counts = Stores.key_value("counts", str, int)


class Ticking(Processor[str, int, str, str]):
    """Forwards when it is called: by a record or by a schedule of 100 ms."""

    def __init__(self, kind: PunctuationType) -> None:
        self._kind = kind

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        context.schedule(100, self._kind, self._tick)

    def process(self, record: Record[str, int]) -> None:
        now = self.context.current_system_time_ms()
        self.context.forward(Record("record", f"{record.value} at {now}", record.timestamp))

    def _tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", str(timestamp), timestamp))


class Committing(Ticking):
    """Counts its calls, and forwards the count before and after it asks for a commit."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self._counts = context.get_state_store(_counts)

    def process(self, record: Record[str, int]) -> None:
        self._count("record", record.timestamp)

    def _tick(self, timestamp: int) -> None:
        self._count("tick", timestamp)

    def _count(self, kind: str, timestamp: int) -> None:
        count = (self._counts.get(kind) or 0) + 1
        task = self.context.task_id
        self.context.forward(Record(kind, f"{count} of {task} before", timestamp))
        self.context.commit()
        self._counts.put(kind, count)
        self.context.forward(Record(kind, f"{count} of {task} after", timestamp))


class DiedError(Exception):
    """A writer is gone."""


class MortalLog:
    """A log whose writer can die in its next transaction: before its commit, or after it."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.fate: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @contextmanager
    def transaction(self, *given: Any, **named: Any) -> Iterator[Any]:
        fate, self.fate = self.fate, None
        with self._log.transaction(*given, **named) as transaction:
            yield transaction
            if fate == "before":
                raise DiedError
        if fate == "after":
            raise DiedError


def ticking(
    folder: Path,
    kind: PunctuationType,
    partitions: int = 1,
    processor: type[Ticking] = Ticking,
) -> InProcessQuery:
    log = open_log(StreamsConfig(application_id="application", state_dir=folder))
    log.create_topic("in", partitions=partitions)
    log.create_topic("out", partitions=1)
    log.close()
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stores = [_counts] if processor is Committing else []
    stream.process(partial(processor, kind), stores=stores, key=str, value=str).to("out")
    return InProcessQuery(builder.build(), folder)


def append(query: InProcessQuery, *timestamps: int, partition: int = 0) -> None:
    value = (7).to_bytes(8, "big")
    query.log.append([("in", partition, time, b"k", value, None) for time in timestamps])


def reported(query: InProcessQuery) -> list[str]:
    name = TopicPartition("out", 0)
    end = query.log.end_offsets([name])[name]
    records = [record for some in query.log.read(name, 0, end) for record in some]
    return [f"{record.key.decode()} {record.value.decode()}" for record in records]


def changes(query: InProcessQuery) -> list[list[tuple[bytes | None, bytes | None]]]:
    names = [TopicPartition("application-counts-changelog", number) for number in range(2)]
    ends = query.log.end_offsets(names)
    return [
        [
            (record.key, record.value)
            for some in query.log.read(name, 0, ends[name])
            for record in some
        ]
        for name in names
    ]


def run_at(query: InProcessQuery, *clocks: int) -> None:
    for clock in clocks:
        query.set_clock(clock)
        query.run()


def test_the_wall_clock_fires_without_any_record(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL)

    run_at(query, 1_000, 1_099, 1_100, 1_150, 1_200)

    assert reported(query) == ["tick 1100", "tick 1200"]


def test_an_unchanged_clock_starts_no_batch(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL)

    run_at(query, 1_000, 1_100)
    batches = query.batches
    run_at(query, 1_100, 1_120, 1_199)

    assert query.batches == batches


def test_every_task_has_its_own_schedule(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL, partitions=3)

    run_at(query, 1_000, 1_100)

    assert reported(query) == ["tick 1100"] * 3


def test_records_see_the_clock_of_their_batch(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL)

    append(query, 1)
    run_at(query, 1_000)
    append(query, 2)
    run_at(query, 1_050)

    assert reported(query) == ["record 7 at 1000", "record 7 at 1050"]


def test_a_clock_that_goes_back_does_not_fire_twice(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL)

    run_at(query, 1_000, 1_100)
    append(query, 1)
    run_at(query, 500)

    assert reported(query) == ["tick 1100", "record 7 at 1100"]


def test_a_start_may_go_back_in_time_and_schedules_keep_their_due_times(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL)
    run_at(query, 50_000, 50_100)

    query.restart_planner()
    append(query, 1)
    run_at(query, 1_000, 1_100, 50_199, 50_200)

    assert reported(query) == ["tick 50100", "record 7 at 1000", "tick 50200"]


def test_stream_time_fires_with_records_alone(tmp_path: Path) -> None:
    query = ticking(tmp_path, STREAM)

    run_at(query, 1_000, 9_000)
    append(query, 1_000)
    run_at(query, 9_000)
    append(query, 1_050, 1_100)
    run_at(query, 9_000, 10_000)

    assert [line for line in reported(query) if line.startswith("tick")] == [
        "tick 1000",
        "tick 1100",
    ]


@pytest.mark.parametrize("batches", [1, 5])
def test_schedules_continue_across_batches(tmp_path: Path, batches: int) -> None:
    query = ticking(tmp_path, STREAM)
    times = list(range(1_000, 1_500, 10))

    for number in range(batches):
        append(query, *times[number * len(times) // batches : (number + 1) * len(times) // batches])
        run_at(query, 9_000)

    ticks = [line for line in reported(query) if line.startswith("tick")]
    assert ticks == [f"tick {time}" for time in range(1_000, 1_500, 100)]


def run_with_a_death_in_each_batch(query: InProcessQuery, moment: str) -> int:
    """Run batches whose first writer dies, and replay them; return how often one did."""
    log, deaths = query.log, 0
    query.log = mortal = MortalLog(log)
    while True:
        start, kept = query.position, copy.deepcopy(query._blobs)
        end = query.planner.next(start)
        if end is start:
            break
        mortal.fate = moment
        try:
            query.replay(start, end)
        except DiedError:
            deaths += 1
            query._blobs = kept
            query.replay(start, end)
        query.position = end
        query.batches += 1
    query.log = log
    return deaths


@pytest.mark.parametrize("kind", [STREAM, WALL])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_records_forwarded_around_a_commit_are_written_once_in_a_replay(
    tmp_path: Path, kind: PunctuationType, moment: str
) -> None:
    deaths = 0
    folders = [tmp_path / "calm", tmp_path / "deadly"]
    for folder in folders:
        folder.mkdir()
    calm, deadly = (ticking(folder, kind, 2, Committing) for folder in folders)

    for query in (calm, deadly):
        for time in (1_000, 1_100, 1_200):
            query.set_clock(time)
            append(query, time, time + 10, partition=0)
            append(query, time, partition=1)
            if query is calm:
                query.run()
            else:
                deaths += run_with_a_death_in_each_batch(query, moment)

    ticks = 3 if kind is STREAM else 2
    calls = [("record", 6, "0_0"), ("record", 3, "0_1"), ("tick", ticks, "0_0")]
    assert sorted(reported(deadly)) == sorted(
        f"{name} {number} of {task} {side}"
        for name, count, task in [*calls, ("tick", ticks, "0_1")]
        for number in range(1, count + 1)
        for side in ("before", "after")
    )
    assert reported(deadly) == reported(calm)
    assert changes(deadly) == changes(calm)
    # A batch tells the last value of a key.
    assert [len(records) for records in changes(calm)] == [3 + ticks, 3 + ticks]
    assert deaths == 3


def test_the_wall_clock_extractor_reads_the_clock_of_the_batch_in_the_reader_too(
    tmp_path: Path,
) -> None:
    log = open_log(StreamsConfig(application_id="application", state_dir=tmp_path))
    log.create_topic("in")
    log.close()
    builder = StreamsBuilder()
    extractor = WallclockTimestampExtractor()
    builder.stream("in", key=str, value=int, timestamp_extractor=extractor).to("out")
    query = InProcessQuery(builder.build(), tmp_path)

    append(query, 1)
    run_at(query, 123_456)

    name = TopicPartition("out", 0)
    [[record]] = query.log.read(name, 0, 1)
    assert query.plan.stages == 0
    assert record.timestamp == 123_456
