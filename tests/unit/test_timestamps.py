from __future__ import annotations

import logging
import pickle
from typing import ClassVar

import pytest

from headrace import StreamsBuilder
from headrace.errors import InvalidTimestampError
from headrace.records import ConsumerRecord
from headrace.testing import TopologyTestDriver
from headrace.timestamps import (
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
    UsesWallClock,
    WallclockTimestampExtractor,
)

WITH_TIME = ConsumerRecord("orders", 3, 7, 1_000, "key", "value")
WITHOUT_TIME = WITH_TIME._replace(timestamp=-1)


def timestamp_by(extractor: TimestampExtractor, timestamp: int) -> int:
    """Return the timestamp of a record in an application at 9,000 ms."""
    builder = StreamsBuilder()
    records = builder.stream("in", key=str, value=str, timestamp_extractor=extractor)
    records.to("out")
    with TopologyTestDriver(builder.build(), initial_wall_clock_time=9_000) as driver:
        driver.create_input_topic("in").pipe_input("k", "v", timestamp=timestamp)
        return driver.create_output_topic("out").read_record().timestamp


every_extractor = pytest.mark.parametrize(
    "extractor",
    [
        FailOnInvalidTimestamp(),
        LogAndSkipOnInvalidTimestamp(),
        UsePartitionTimeOnInvalidTimestamp(),
    ],
)


@every_extractor
@pytest.mark.parametrize("timestamp", [0, 1_000])
def test_the_timestamp_of_the_record_is_used_if_it_has_one(
    extractor: TimestampExtractor, timestamp: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert extractor(WITH_TIME._replace(timestamp=timestamp), 5_000) == timestamp
    assert caplog.messages == []


def test_failing_names_the_record_and_the_other_extractors() -> None:
    with pytest.raises(InvalidTimestampError) as raised:
        FailOnInvalidTimestamp()(WITHOUT_TIME, 5_000)

    error = raised.value
    assert (error.topic, error.partition, error.offset) == ("orders", 3, 7)
    assert str(error).startswith(
        "Record 7 of topic 'orders', partition 3 has the timestamp -1, which is negative."
    )
    assert "`LogAndSkipOnInvalidTimestamp`" in str(error)


def test_skipping_logs_the_record_and_leaves_the_timestamp_negative(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert LogAndSkipOnInvalidTimestamp()(WITHOUT_TIME, 5_000) == -1

    assert caplog.messages == [
        "Record 7 of topic orders, partition 3 is dropped: its timestamp -1 is negative."
    ]


def test_the_partition_time_stands_in_for_a_missing_timestamp() -> None:
    assert UsePartitionTimeOnInvalidTimestamp()(WITHOUT_TIME, 5_000) == 5_000
    assert UsePartitionTimeOnInvalidTimestamp()(WITHOUT_TIME, 0) == 0


def test_an_unknown_partition_time_cannot_stand_in() -> None:
    with pytest.raises(InvalidTimestampError, match=r"partition 3 has the timestamp -1.*No record"):
        UsePartitionTimeOnInvalidTimestamp()(WITHOUT_TIME, -1)


def test_the_wall_clock_is_the_one_the_task_gives() -> None:
    extractor = WallclockTimestampExtractor().at(9_000)

    assert extractor(WITH_TIME, 5_000) == 9_000
    assert extractor(WITHOUT_TIME, -1) == 9_000


def test_the_wall_clock_cannot_be_asked_without_a_task() -> None:
    with pytest.raises(RuntimeError, match=r"no clock of its own.*`.at\(wall_clock_ms\)`"):
        WallclockTimestampExtractor()(WITH_TIME, 5_000)


def test_an_extractor_of_the_users_may_ask_for_the_time() -> None:
    class RecordTimeOrNow:
        uses_wall_clock: ClassVar[bool] = True

        def at(self, wall_clock_ms: int, /) -> TimestampExtractor:
            return lambda record, _: record.timestamp if record.timestamp >= 0 else wall_clock_ms

        def __call__(self, record: ConsumerRecord, partition_time: int, /) -> int:
            raise NotImplementedError

    assert isinstance(RecordTimeOrNow(), UsesWallClock)
    assert timestamp_by(RecordTimeOrNow(), 1_000) == 1_000
    assert timestamp_by(RecordTimeOrNow(), -1) == 9_000


def test_an_extractor_that_declines_the_clock_gets_none() -> None:
    class NoClock(WallclockTimestampExtractor):
        uses_wall_clock: ClassVar[bool] = False

    with pytest.raises(InvalidTimestampError, match="no clock of its own"):
        timestamp_by(NoClock(), 1_000)


@pytest.mark.parametrize(
    "extractor",
    [
        FailOnInvalidTimestamp(),
        LogAndSkipOnInvalidTimestamp(),
        UsePartitionTimeOnInvalidTimestamp(),
        WallclockTimestampExtractor(),
        WallclockTimestampExtractor().at(5),
    ],
)
def test_extractors_are_values_that_can_be_shipped(extractor: TimestampExtractor) -> None:
    assert pickle.loads(pickle.dumps(extractor)) == extractor
