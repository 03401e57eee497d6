"""The topics of a test."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import EmptyTopicError, Headers, Record, StreamsBuilder
from headrace.testing import DriverFactory, TestInputTopic, TestOutputTopic

Topics = tuple[TestInputTopic[Any, Any], TestOutputTopic[Any, Any]]


def topics(topology_driver: DriverFactory, **options: Any) -> Topics:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    driver = topology_driver(builder.build(), initial_wall_clock_time=100)
    return driver.create_input_topic("in", **options), driver.create_output_topic("out")


def times(output: TestOutputTopic[Any, Any]) -> list[int]:
    return [record.timestamp for record in output.read_records_to_list()]


def test_a_record_without_a_time_gets_the_wall_clocks(topology_driver: DriverFactory) -> None:
    source, output = topics(topology_driver)

    source.pipe_input("a", 1)
    source.pipe_input("a", 1)

    assert times(output) == [100, 100]


def test_a_topic_may_start_elsewhere_and_advance_by_itself(topology_driver: DriverFactory) -> None:
    source, output = topics(topology_driver, start_timestamp=5, auto_advance="1s")

    source.pipe_input("a", 1)
    source.pipe_input("a", 1, timestamp=7)
    source.pipe_input("a", 1)
    source.advance_time(10)
    source.pipe_value_list([1, 2])

    assert times(output) == [5, 7, 1005, 2015, 3015]


def test_the_time_of_a_topic_does_not_go_back(topology_driver: DriverFactory) -> None:
    source, _ = topics(topology_driver)

    with pytest.raises(ValueError, match="The time of topic 'in' cannot go back by 1 ms"):
        source.advance_time(-1)


@pytest.mark.parametrize(
    ("start", "advance", "expected"),
    [
        (None, None, [100, 100]),
        (7, None, [7, 7]),
        (7, 2, [7, 9]),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "1s", [1000, 2000]),
        (None, 5, [100, 105]),
    ],
)
def test_a_list_has_times_of_its_own(
    topology_driver: DriverFactory, start: Any, advance: Any, expected: list[int]
) -> None:
    source, output = topics(topology_driver)

    source.pipe_key_value_list([("a", 1), ("b", 2)], start=start, advance=advance)

    assert times(output) == expected


def test_records_are_piped_as_they_are(topology_driver: DriverFactory) -> None:
    source, output = topics(topology_driver)
    records: list[Record[Any, Any]] = [Record("a", 1, 3, [("h", b"1")]), Record("b", None, 4)]

    source.pipe_record_list(records)

    assert output.read_records_to_list() == records


def test_values_may_be_piped_without_keys(topology_driver: DriverFactory) -> None:
    source, output = topics(topology_driver)

    source.pipe_value_list([1, None])

    assert output.read_key_values_to_list() == [(None, 1), (None, None)]


def test_a_read_record_is_gone(topology_driver: DriverFactory) -> None:
    source, output = topics(topology_driver)
    source.pipe_key_value_list([("a", 1), ("b", 2), ("c", 3)])

    assert (output.queue_size, output.is_empty()) == (3, False)
    assert output.read_key_value() == ("a", 1)
    assert output.read_value() == 2
    assert output.read_values_to_list() == [3]
    assert (output.queue_size, output.is_empty()) == (0, True)


def test_reading_an_empty_topic_is_an_error(topology_driver: DriverFactory) -> None:
    _, output = topics(topology_driver)

    with pytest.raises(EmptyTopicError, match="Topic 'out' holds no more records"):
        output.read_value()


def test_a_map_has_the_last_value_of_each_key(topology_driver: DriverFactory) -> None:
    source, output = topics(topology_driver)

    source.pipe_key_value_list([("a", 1), ("b", 2), ("a", None)])

    assert output.read_key_values_to_map() == {"a": None, "b": 2}


def test_a_record_without_a_key_does_not_fit_in_a_map(topology_driver: DriverFactory) -> None:
    source, output = topics(topology_driver)
    source.pipe_value_list([1])

    with pytest.raises(ValueError, match="A record of topic 'out' has no key"):
        output.read_key_values_to_map()


def test_topics_may_be_read_and_written_with_other_serdes(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in", key=bytes, value=bytes).pipe_input(b"a", bytes(8))

    assert driver.create_output_topic("out", value=bytes).read_key_value() == ("a", bytes(8))


def test_topics_show_themselves(topology_driver: DriverFactory) -> None:
    source, output = topics(topology_driver)
    source.pipe_input("a", 1, headers=Headers())

    assert repr(source) == "<TestInputTopic 'in'>"
    assert repr(output) == "<TestOutputTopic 'out' with 1 records>"
