"""Behaviour of `filter` and `filter_not` on streams."""

from __future__ import annotations

from headrace import Headers, Record, StreamsBuilder
from headrace.testing import DriverFactory


def test_filter_keeps_the_records_the_predicate_accepts(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).filter(lambda _, amount: amount > 1).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_key_value_list([("a", 1), ("b", 2), ("c", 3)])

    assert driver.create_output_topic("out").read_key_values_to_list() == [("b", 2), ("c", 3)]


def test_filter_not_keeps_the_records_the_predicate_refuses(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).filter_not(lambda _, amount: amount > 1).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_key_value_list([("a", 1), ("b", 2)])

    assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 1)]


def test_a_predicate_sees_records_without_key_and_value(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.filter(lambda key, value: key is None and value is None).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_key_value_list([("a", 1), (None, None)])

    assert driver.create_output_topic("out").read_key_values_to_list() == [(None, None)]


def test_a_kept_record_keeps_its_timestamp_and_headers(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).filter(lambda *_: True).to("out")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    topic.pipe_input("a", 1, timestamp=7, headers=[("h", b"1")])

    expected = Record("a", 1, 7, Headers([("h", b"1")]))
    assert driver.create_output_topic("out").read_record() == expected
