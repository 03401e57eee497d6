"""Behaviour of sources that read every topic of a pattern."""

from __future__ import annotations

import re

import pytest

from headrace import StreamsBuilder, StreamsError, Topology, TopologyError
from headrace.testing import DriverFactory, TopologyTestDriver


def test_a_pattern_reads_every_topic_whose_whole_name_matches(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile(r"orders-\d+"), key=str, value=int).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("orders-1").pipe_input("a", 1)
    driver.create_input_topic("orders-22").pipe_input("b", 2)

    assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 1), ("b", 2)]


def test_a_topic_that_matches_only_in_part_is_not_read(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile(r"orders-\d+"), key=str, value=int).to("out")
    driver = topology_driver(builder.build())

    with pytest.raises(StreamsError, match="does not read topic 'orders-1-old'"):
        driver.create_input_topic("orders-1-old")


def test_streams_of_one_pattern_share_their_source() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("a.*"), key=str, value=int).to("one")
    builder.stream(re.compile("a.*"), key=str, value=int).to("two")

    text = str(builder.build().describe())

    assert text.count("Source:") == 1
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: a.*)" in text


def test_a_pattern_may_not_match_a_topic_that_is_read_by_name() -> None:
    builder = StreamsBuilder()
    builder.stream("apples", key=str, value=int)
    builder.stream(re.compile("a.*"), key=str, value=int)

    with pytest.raises(TopologyError) as caught:
        builder.build()

    assert str(caught.value) == (
        "The pattern 'a.*' of source 'KSTREAM-SOURCE-0000000001' matches topic 'apples', "
        "which 'KSTREAM-SOURCE-0000000000' reads. Make the pattern narrower."
    )


def two_patterns() -> Topology:
    builder = StreamsBuilder()
    builder.stream(re.compile("a.*"), key=str, value=int).to("one")
    builder.stream(re.compile(".*b"), key=str, value=int).to("two")
    builder.stream("in", key=str, value=int).to(lambda key, _value, _context: key)
    return builder.build()


def test_topics_that_one_of_two_patterns_matches_are_read(topology_driver: DriverFactory) -> None:
    driver = topology_driver(two_patterns(), partitions=2)

    driver.create_input_topic("ax").pipe_input("k", 1)
    driver.create_input_topic("xb").pipe_input("k", 2)

    assert driver.create_output_topic("one").read_values_to_list() == [1]
    assert driver.create_output_topic("two").read_values_to_list() == [2]


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_topic_that_two_patterns_match_is_refused(partitions: int) -> None:
    with (
        TopologyTestDriver(two_patterns(), partitions=partitions) as driver,
        pytest.raises(TopologyError, match="Topic 'ab' matches the pattern 'a"),
    ):
        driver.create_input_topic("ab")


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_topic_that_two_patterns_match_is_refused_when_the_topology_writes_it(
    partitions: int,
) -> None:
    with TopologyTestDriver(two_patterns(), partitions=partitions) as driver:
        topic = driver.create_input_topic("in")

        with pytest.raises(TopologyError, match="Topic 'ab' matches the pattern 'a"):
            topic.pipe_input("ab", 1)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_pattern_does_not_take_the_records_of_a_repartition(partitions: int) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile(".*-repartition"), key=str, value=int).to("taken")
    builder.stream("in", key=str, value=int).repartition(name="again").to("out")

    with TopologyTestDriver(builder.build(), partitions=partitions) as driver:
        driver.create_input_topic("in").pipe_input("k", 1)

        assert driver.create_output_topic("out").read_values_to_list() == [1]
        assert driver.create_output_topic("taken").is_empty()


def test_a_low_level_source_takes_one_pattern(topology_driver: DriverFactory) -> None:
    topology = Topology()
    topology.add_source("source", re.compile("a.*"), key=str, value=int)
    topology.add_sink("sink", "out", "source", key=str, value=int)
    driver = topology_driver(topology)

    driver.create_input_topic("apples").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_value() == 1


@pytest.mark.parametrize("topics", [(re.compile("a"), "b"), ("b", re.compile("a"))])
def test_a_source_takes_a_pattern_or_topics_not_both(
    topics: tuple[str | re.Pattern[str], ...],
) -> None:
    with pytest.raises(TopologyError, match="'source' was given a pattern and more"):
        Topology().add_source("source", *topics)
