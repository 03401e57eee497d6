"""The timestamp of a change is the one that Kafka writes with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
)
from headrace.engine.settings import TaskSettings
from headrace.records import ConsumerRecord
from tests.unit.engine.test_task import task_of

CACHES = pytest.mark.parametrize("cache", [0, 1 << 24])


def later(record: ConsumerRecord, _partition_time: int) -> int:
    """Return a timestamp one second after the record's."""
    return record.timestamp + 1_000


def changes(
    builder: StreamsBuilder, *records: tuple[int, int | None], cache: int = 0
) -> list[tuple[bytes | None, int]]:
    """Return values and timestamps of the changes that records, given as time and value, make."""
    settings = replace(TaskSettings(), cache_max_bytes=cache)
    task = task_of(builder.build(), settings=settings, logs_changes=True)
    rows = [
        ConsumerRecord(
            "a", 0, offset, time, b"k", None if value is None else bytes([0] * 7 + [value])
        )
        for offset, (time, value) in enumerate(records)
    ]
    task.enqueue("a", rows)
    task.process()
    task.commit()
    [changelog] = task.changelogs.values()
    timestamps, _, values = changelog.take()
    return list(zip(values, timestamps, strict=True))


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


@CACHES
def test_an_aggregate_has_the_latest_timestamp_of_its_records(cache: int) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a", key=str, value=int)
    stream.group_by_key().reduce(lambda a, b: a + b, materialized="s")

    assert changes(builder, (5, 1), (9, 1), (7, 1), cache=cache) == [(number(3), 9)]


def test_a_deletion_has_the_timestamp_of_its_record_as_extracted() -> None:
    builder = StreamsBuilder()
    builder.table("a", key=str, value=int, materialized="s", timestamp_extractor=later)
    written = [(5, 1), (9, None)]

    assert changes(builder, *written) == [(None, 1_009)]
    # An entry that the cache never wrote need not be deleted.
    assert changes(builder, *written, cache=1 << 24) == []


@CACHES
def test_a_session_has_the_timestamp_of_its_last_record(cache: int) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a", key=str, value=int, timestamp_extractor=later)
    stream.group_by_key().windowed_by(SessionWindows(10)).count(materialized="s")

    assert changes(builder, (5, 1), (9, 1), (7, 1), cache=cache)[-1] == (number(3), 1_007)


class Putting(Processor[str, int, str, int]):
    """Puts each value, and again when it is called."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.store: Any = context.get_state_store("s")
        context.schedule("10ms", PunctuationType.STREAM_TIME, self.call)

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_timestamp(record.timestamp + 50))
        self.store.put(record.key, record.value)

    def call(self, timestamp: int) -> None:
        self.store.put("called", timestamp)


def putting(builder: StreamsBuilder) -> Any:
    builder.add_state_store(Stores.key_value("s", str, int))
    stream = builder.stream("a", key=str, value=int, timestamp_extractor=later)
    return stream.process(Putting, stores=["s"], key=str, value=int)


def test_a_put_of_a_processor_has_the_timestamp_of_the_record_or_of_the_call() -> None:
    builder = StreamsBuilder()
    putting(builder)

    assert changes(builder, (1, 1), (5, 2)) == [
        (number(2), 1_005),
        (number(1_001), 1_001),
    ]


def test_a_put_in_a_wall_clock_punctuation_has_its_timestamp() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value("s", str, int))

    class Ticking(Processor[str, int, str, int]):
        def init(self, context: ProcessorContext[str, int]) -> None:
            super().init(context)
            store = context.get_state_store("s")
            context.schedule("10ms", PunctuationType.WALL_CLOCK_TIME, lambda at: store.put("t", at))

        def process(self, record: Record[str, int]) -> None: ...

    builder.stream("a", key=str, value=int).process(Ticking, stores=["s"])
    task = task_of(builder.build(), logs_changes=True)
    task.advance_wall_clock(70)

    assert task.changelogs["s"].take().timestamps == [70]


def test_a_put_after_a_forward_has_the_timestamp_from_before() -> None:
    builder = StreamsBuilder()
    seen = putting(builder)

    class Shifted(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.get_state_store("s").put("shifted", record.timestamp)

    seen.process(Shifted, stores=["s"])

    assert changes(builder, (1, 1)) == [
        (number(1_051), 1_051),
        (number(1), 1_001),
        (number(1_001), 1_001),
    ]


def test_a_task_without_logged_stores_notes_no_change() -> None:
    builder = StreamsBuilder()
    builder.table("a", key=str, value=int, materialized="s")

    assert task_of(builder.build()).changelogs == {}
