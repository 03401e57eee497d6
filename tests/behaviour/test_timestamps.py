"""Behaviour of timestamp extractors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import (
    ConsumerRecord,
    FailOnInvalidTimestamp,
    InvalidTimestampError,
    LogAndSkipOnInvalidTimestamp,
    StreamsBuilder,
    TimestampExtractor,
    Topology,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from headrace.testing import DriverFactory, TopologyTestDriver

NOW = int(datetime(2024, 5, 1, tzinfo=UTC).timestamp() * 1000)


def driver_with(driver_of: DriverFactory, extractor: TimestampExtractor) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int, timestamp_extractor=extractor, name="source").to("out")
    return driver_of(builder.build(), initial_wall_clock_time=NOW)


def times(driver: TopologyTestDriver, *piped: int) -> list[int]:
    topic = driver.create_input_topic("in")
    for time in piped:
        topic.pipe_input("a", time, timestamp=time)
    return [record.timestamp for record in driver.create_output_topic("out").read_records_to_list()]


def test_fail_on_invalid_timestamp_uses_the_time_of_the_record(
    topology_driver: DriverFactory,
) -> None:
    assert times(driver_with(topology_driver, FailOnInvalidTimestamp()), 0, 8) == [0, 8]


def test_fail_on_invalid_timestamp_stops_at_a_negative_one(topology_driver: DriverFactory) -> None:
    driver = driver_with(topology_driver, FailOnInvalidTimestamp())

    with pytest.raises(InvalidTimestampError, match=r"Record 1 of topic 'in'.*which is negative"):
        times(driver, 5, -1)


def test_log_and_skip_drops_and_counts(topology_driver: DriverFactory) -> None:
    driver = driver_with(topology_driver, LogAndSkipOnInvalidTimestamp())

    read = times(driver, 5, -1, 6)

    tags = [name.tags[1:] for name in driver.metrics() if name.tags[1:]]
    assert read == [5, 6]
    assert tags == [(("processor-node-id", "source"), ("reason", "invalid-timestamp"))]


def test_use_partition_time_takes_the_highest_time_so_far(topology_driver: DriverFactory) -> None:
    driver = driver_with(topology_driver, UsePartitionTimeOnInvalidTimestamp())

    assert times(driver, 5, 9, 7, -1) == [5, 9, 7, 9]


def test_use_partition_time_fails_if_there_is_none_yet(topology_driver: DriverFactory) -> None:
    driver = driver_with(topology_driver, UsePartitionTimeOnInvalidTimestamp())

    with pytest.raises(InvalidTimestampError, match="No record of its partition had a timestamp"):
        times(driver, -1)


def test_the_wall_clock_extractor_follows_the_clock_of_the_driver(
    topology_driver: DriverFactory,
) -> None:
    driver = driver_with(topology_driver, WallclockTimestampExtractor())

    first = times(driver, 5)
    driver.advance_wall_clock_time("1s")

    assert first + times(driver, 6) == [NOW, NOW + 1000]


def test_an_extractor_sees_the_decoded_record_and_the_partition_time(
    topology_driver: DriverFactory,
) -> None:
    seen: list[tuple[Any, Any, int, int]] = []

    def extract(record: ConsumerRecord, partition_time: int) -> datetime:
        seen.append((record.key, record.value, record.timestamp, partition_time))
        return datetime.fromtimestamp(record.value, tz=UTC)

    driver = driver_with(topology_driver, extract)

    assert times(driver, 5, 3) == [5000, 3000]
    assert seen == [("a", 5, 5, -1), ("a", 3, 3, 5000)]


def test_a_record_with_a_negative_answer_is_dropped(topology_driver: DriverFactory) -> None:
    driver = driver_with(topology_driver, lambda record, _: -1 if record.value == 1 else 2)

    assert times(driver, 1, 2) == [2]


@pytest.mark.parametrize(
    ("extractor", "message"),
    [
        pytest.param(lambda record, _: record.value.time, "AttributeError", id="raises"),
        pytest.param(lambda record, _: None, "it returned None", id="returns nothing"),
        pytest.param(lambda record, _: 1.5, "it returned 1.5", id="returns a float"),
        pytest.param(lambda record, _: datetime(2024, 5, 1), "has no time zone", id="no zone"),
    ],
)
def test_an_extractor_that_fails_stops_the_application(
    topology_driver: DriverFactory, extractor: Any, message: str
) -> None:
    driver = driver_with(topology_driver, extractor)

    with pytest.raises(InvalidTimestampError) as caught:
        times(driver, 5)

    assert "extractor of source 'source' failed on offset 0 of topic 'in'" in str(caught.value)
    assert message in str(caught.value)
    assert (caught.value.node, caught.value.offset) == ("source", 0)


def test_the_extractor_of_a_source_wins_over_the_applications(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int, timestamp_extractor=lambda *_: 1).to("own")
    builder.stream("other", key=str, value=int).to("default")
    driver = topology_driver(builder.build(), default_timestamp_extractor=lambda *_: 2)

    driver.create_input_topic("in").pipe_input("a", 1)
    driver.create_input_topic("other").pipe_input("a", 1)

    assert driver.create_output_topic("own").read_record().timestamp == 1
    assert driver.create_output_topic("default").read_record().timestamp == 2


def test_a_repartition_keeps_the_extracted_time(topology_driver: DriverFactory) -> None:
    asked: list[int] = []

    def extract(record: ConsumerRecord, _: int) -> int:
        asked.append(record.value)
        return 3

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).repartition().to("out")
    driver = topology_driver(builder.build(), default_timestamp_extractor=extract)

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_record().timestamp == 3
    assert asked == [1]


def test_a_low_level_source_takes_an_extractor(topology_driver: DriverFactory) -> None:
    topology = Topology()
    topology.add_source("s", "in", key=str, value=int, timestamp_extractor=lambda *_: 4)
    topology.add_sink("sink", "out", "s", key=str, value=int)
    driver = topology_driver(topology)

    assert times(driver, 1) == [4]
