"""Behaviour of `merge`."""

from __future__ import annotations

import pytest

from headrace import MissingSerdeError, StreamsBuilder, TopologyError
from headrace.testing import DriverFactory, TopologyTestDriver


def test_a_merged_stream_has_the_records_of_both(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    one = builder.stream("one", key=str, value=int)
    one.merge(builder.stream("two", key=str, value=int)).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("two").pipe_input("b", 2)
    driver.create_input_topic("one").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_key_values_to_list() == [("b", 2), ("a", 1)]


def test_a_stream_merged_with_itself_is_the_stream(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.merge(stream).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 1)]


def test_merging_streams_of_different_types_needs_a_serde() -> None:
    builder = StreamsBuilder()
    one = builder.stream("one", key=str, value=int)
    other = builder.stream("two", key=str, value=str)
    one.merge(other, name="both").to("out", name="sink")  # type: ignore[arg-type]  # what is tested

    with pytest.raises(MissingSerdeError) as caught:
        TopologyTestDriver(builder.build())

    [value] = caught.value.missing
    assert value.lost_by.startswith("merge(…) at ")
    assert str(value).endswith(
        "Give both merged streams the same `value=`, or set `default_value_serde`."
    )


def test_streams_of_different_builders_cannot_be_merged() -> None:
    mine = StreamsBuilder().stream("one", key=str, value=int)
    theirs = StreamsBuilder().stream("two", key=str, value=int)

    with pytest.raises(TopologyError, match="different builders"):
        mine.merge(theirs)
