"""The records of one partition that wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.record_failures import Failures
from headrace.engine.record_queue import RecordQueue, StampedRecord
from headrace.engine.settings import TaskSettings
from headrace.errors import DeserializationError, InvalidTimestampError
from headrace.processors.handlers import built_in_handler
from headrace.records import ConsumerRecord, without_headers
from headrace.serdes import Serdes
from headrace.timestamps import (
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    TimestampExtractor,
    WallclockTimestampExtractor,
)


class FakeTask:
    """The task's side of a queue."""

    def __init__(self, settings: TaskSettings) -> None:
        self.wall_clock = 77
        self.dropped: list[tuple[str, str]] = []
        self.failures = Failures(settings, "0_0", lambda _: None, self.drop)

    def drop(self, node: str, reason: str) -> None:
        self.dropped.append((node, reason))


def queue_of(
    extractor: TimestampExtractor | None = None, *, lenient: bool = False
) -> tuple[RecordQueue, FakeTask]:
    handler = built_in_handler("continue" if lenient else "fail")
    task: Any = FakeTask(TaskSettings(on_deserialization_error=handler))
    serdes = Serdes.string(), Serdes.long()
    extract = extractor or FailOnInvalidTimestamp()
    return RecordQueue(task, "source", "t", 0, serdes, extract, print), task


def record(offset: int, timestamp: int = 5, value: bytes | None = bytes(8)) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, timestamp, b"k", value)


def test_the_first_record_is_shown_decoded_until_it_is_taken() -> None:
    queue, _ = queue_of()
    queue.add([record(0), record(1)])

    shown = queue.head()

    assert shown == StampedRecord(record(0), "k", 0, 5)
    assert (queue.head(), queue.take()) == (shown, shown)
    assert queue.head() == StampedRecord(record(1), "k", 0, 5)


def test_an_empty_queue_shows_nothing() -> None:
    queue, _ = queue_of()

    assert (queue.head(), queue.is_empty()) == (None, True)


def test_a_record_that_was_looked_at_still_waits() -> None:
    queue, _ = queue_of()
    queue.add([record(0), record(1)])
    before = queue.is_decoded()

    queue.head()

    assert (before, queue.is_decoded(), queue.is_empty()) == (False, True, False)
    assert queue.unprocessed() == [record(0), record(1)]


class FakeBacklog:
    """A backlog of three records, which are read two at a time."""

    def __init__(self) -> None:
        self.count = 3
        self._records = [record(0), record(1), record(2)]

    def read(self) -> list[ConsumerRecord]:
        some, self._records = self._records[:2], self._records[2:]
        self.count = len(self._records)
        return some


def test_a_backlog_is_read_when_it_is_needed_and_before_new_records() -> None:
    queue, _ = queue_of()
    backlog = FakeBacklog()
    queue.resume(backlog)
    queue.add([record(3)])
    taken: list[int] = []

    assert (queue.head(), queue.is_empty(), backlog.count) == (None, False, 3)
    assert queue.unprocessed() == [record(3)]
    while not queue.is_empty():
        if queue.has_unread():
            queue.read_backlog()
        assert queue.head() is not None
        taken.append(queue.take().raw.offset)

    assert taken == [0, 1, 2, 3]


def test_the_time_of_the_partition_is_the_highest_taken() -> None:
    queue, _ = queue_of()
    queue.add([record(0, 9), record(1, 3)])

    times = [queue.partition_time]
    while queue.head() is not None:
        queue.take()
        times.append(queue.partition_time)

    assert times == [-1, 9, 9]


def test_null_is_not_decoded() -> None:
    queue, _ = queue_of()
    queue.add([ConsumerRecord("t", 0, 0, 5, None, None)])

    head = queue.head()

    assert head is not None
    assert (head.key, head.value) == (None, None)


def test_an_unreadable_record_is_skipped_if_the_handler_continues() -> None:
    queue, task = queue_of(lenient=True)
    queue.add([record(0, value=b"bad"), record(1)])

    head = queue.head()

    assert head is not None
    assert head.raw.offset == 1
    assert task.dropped == [("source", "deserialization")]


def test_an_unreadable_record_stops_the_task_by_default() -> None:
    queue, _ = queue_of()
    queue.add([record(0, value=b"bad")])

    with pytest.raises(DeserializationError):
        queue.head()


def test_a_record_without_a_time_is_passed_over_or_stops_the_task() -> None:
    lenient, task = queue_of(LogAndSkipOnInvalidTimestamp())
    strict, _ = queue_of()
    for queue in (lenient, strict):
        queue.add([record(0, -1)])

    assert lenient.head() is None
    assert task.dropped == [("source", "invalid-timestamp")]
    with pytest.raises(InvalidTimestampError):
        strict.head()


def test_what_an_extractor_quotes_cannot_forge_a_line_of_a_log() -> None:
    def refuse(_record: ConsumerRecord, _time: int) -> int:
        raise ValueError("no time in \x1b[2J\n12:00:00 INFO fine")

    queue, _ = queue_of(refuse)
    queue.add([record(0)])

    with pytest.raises(InvalidTimestampError) as caught:
        queue.head()

    assert str(caught.value) == (
        "The timestamp extractor of source 'source' failed on offset 0 of topic 't', partition 0: "
        "ValueError: no time in \\u001b[2J\\n12:00:00 INFO fine. Correct it, or let it return -1 "
        "to leave the record out."
    )


def test_the_wall_clock_is_the_tasks() -> None:
    queue, task = queue_of(WallclockTimestampExtractor())
    queue.add([record(0), record(1)])

    first = queue.head()
    queue.take()
    task.wall_clock = 99
    second = queue.head()

    assert [head and head.timestamp for head in (first, second)] == [77, 99]


def test_an_extractor_that_could_follow_a_clock_but_does_not_is_called_itself() -> None:
    class Own:
        uses_wall_clock = False

        def at(self, _now: int, /) -> TimestampExtractor:
            raise AssertionError

        def __call__(self, _record: ConsumerRecord, _time: int, /) -> int:
            return 3

    queue, _ = queue_of(Own())
    queue.add([record(0)])

    head = queue.head()

    assert head is not None
    assert head.timestamp == 3


def test_a_serde_is_asked_once_for_its_topic() -> None:
    asked: list[tuple[str, bool]] = []

    class PerTopic:
        def for_topic(self, topic: str, *, is_key: bool) -> Any:
            asked.append((topic, is_key))
            return Serdes.bytes()

    task: Any = SimpleNamespace(failures=None, wall_clock=0)
    serdes: Any = (PerTopic(), PerTopic())
    queue = RecordQueue(task, "source", "t", 0, serdes, FailOnInvalidTimestamp(), print)
    queue.add([record(0), record(1)])

    while queue.head() is not None:
        queue.take()

    assert asked == [("t", True), ("t", False)]


@pytest.mark.parametrize("extractor", [FailOnInvalidTimestamp(), LogAndSkipOnInvalidTimestamp()])
def test_a_record_whose_headers_cannot_be_read_is_left_to_the_handler(
    extractor: TimestampExtractor,
) -> None:
    queue, task = queue_of(extractor, lenient=True)
    timestamp, headers = without_headers(5, "no text")
    queue.add([record(0, timestamp)._replace(headers=headers), record(1)])

    assert queue.head() == StampedRecord(record(1), "k", 0, 5)
    assert task.dropped == [("source", "deserialization")]
