"""Settings are typed keywords; the test driver has the types it is given."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from headrace import KafkaStreams, Record, StreamsBuilder, StreamsConfig, Topology
from headrace.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver

builder = StreamsBuilder()
builder.stream("in", key=str, value=int).filter(lambda _, number: number > 1).to("out")
topology = builder.build()
assert_type(topology, Topology)

config = StreamsConfig(
    application_id="typed",
    commit_interval="100ms",
    deserialization_exception_handler="continue",
    consumer={"fetch.min.bytes": 1},
)
KafkaStreams(topology, application_id="typed", commit_interval=timedelta(milliseconds=100))
KafkaStreams(topology, config, processing_exception_handler="fail")
KafkaStreams(topology, {"application.id": "typed"})

with TopologyTestDriver(topology) as driver:
    into = driver.create_input_topic("in", key=str, value=int)
    out = driver.create_output_topic("out", key=str, value=int)
    assert_type(into, TestInputTopic[str, int])
    assert_type(out, TestOutputTopic[str, int])
    for number in range(5):
        into.pipe_input("key", number, timestamp=number)
    assert_type(out.read_value(), int)
    assert_type(out.read_key_value(), tuple[str, int])
    assert_type(out.read_record(), Record[str, int])
    assert_type(out.read_values_to_list(), list[int])
    assert_type(out.is_empty(), bool)
