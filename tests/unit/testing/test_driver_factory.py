"""The fixture `topology_driver` accepts the arguments of `TopologyTestDriver`."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import StreamsBuilder, StreamsConfig
from headrace.testing import DriverFactory


@pytest.mark.parametrize(
    "config",
    [
        StreamsConfig(default_key_serde=str, default_value_serde=int),
        {"default.key.serde": str, "default.value.serde": int},
    ],
)
def test_the_config_may_be_the_second_argument(
    topology_driver: DriverFactory, config: StreamsConfig | dict[str, Any]
) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")

    driver = topology_driver(builder.build(), config, initial_wall_clock_time=5)
    driver.create_input_topic("in").pipe_input("a", 1)

    record = driver.create_output_topic("out").read_record()
    assert (record.key, record.value, record.timestamp) == ("a", 1, 5)
