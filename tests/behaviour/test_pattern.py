"""Behaviour of sources that read every topic of a pattern."""

from __future__ import annotations

import re

import pytest

from headrace import StreamsBuilder, StreamsError, Topology, TopologyError
from headrace.testing import DriverFactory


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
