"""Schedules on the runtime: both clocks, with and without records, over batches and restarts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from headrace import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
    WallclockTimestampExtractor,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from tests.runtime.in_process import InProcessQuery

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


class Ticking(Processor[str, int, str, str]):
    """Tells when it is called: by a record or by a schedule of 100 ms."""

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


def ticking(folder: Path, kind: PunctuationType, partitions: int = 1) -> InProcessQuery:
    log = open_log(StreamsConfig(application_id="application", state_dir=folder))
    log.create_topic("in", partitions=partitions)
    log.create_topic("out", partitions=1)
    log.close()
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.process(partial(Ticking, kind), key=str, value=str).to("out")
    return InProcessQuery(builder.build(), folder)


def append(query: InProcessQuery, *timestamps: int, partition: int = 0) -> None:
    value = (7).to_bytes(8, "big")
    query.log.append([("in", partition, time, b"k", value, None) for time in timestamps])


def told(query: InProcessQuery) -> list[str]:
    name = TopicPartition("out", 0)
    end = query.log.end_offsets([name])[name]
    records = [record for some in query.log.read(name, 0, end) for record in some]
    return [f"{record.key.decode()} {record.value.decode()}" for record in records]


def run_at(query: InProcessQuery, *clocks: int) -> None:
    for clock in clocks:
        query.set_clock(clock)
        query.run()


def test_the_wall_clock_fires_without_any_record(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL)

    run_at(query, 1_000, 1_099, 1_100, 1_150, 1_200)

    assert told(query) == ["tick 1100", "tick 1200"]


def test_a_clock_that_stands_still_costs_no_batch(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL)

    run_at(query, 1_000, 1_100)
    batches = query.batches
    run_at(query, 1_100, 1_120, 1_199)

    assert query.batches == batches


def test_every_task_has_its_own_schedule(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL, partitions=3)

    run_at(query, 1_000, 1_100)

    assert told(query) == ["tick 1100"] * 3


def test_records_see_the_clock_of_their_batch(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL)

    append(query, 1)
    run_at(query, 1_000)
    append(query, 2)
    run_at(query, 1_050)

    assert told(query) == ["record 7 at 1000", "record 7 at 1050"]


def test_a_clock_that_goes_back_does_not_fire_twice(tmp_path: Path) -> None:
    query = ticking(tmp_path, WALL)

    run_at(query, 1_000, 1_100)
    append(query, 1)
    run_at(query, 500)

    assert told(query) == ["tick 1100", "record 7 at 1100"]


def test_stream_time_fires_with_records_alone(tmp_path: Path) -> None:
    query = ticking(tmp_path, STREAM)

    run_at(query, 1_000, 9_000)
    append(query, 1_000)
    run_at(query, 9_000)
    append(query, 1_050, 1_100)
    run_at(query, 9_000, 10_000)

    assert [line for line in told(query) if line.startswith("tick")] == ["tick 1000", "tick 1100"]


@pytest.mark.parametrize("batches", [1, 5])
def test_schedules_go_on_over_batches(tmp_path: Path, batches: int) -> None:
    query = ticking(tmp_path, STREAM)
    times = list(range(1_000, 1_500, 10))

    for number in range(batches):
        append(query, *times[number * len(times) // batches : (number + 1) * len(times) // batches])
        run_at(query, 9_000)

    ticks = [line for line in told(query) if line.startswith("tick")]
    assert ticks == [f"tick {time}" for time in range(1_000, 1_500, 100)]


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
