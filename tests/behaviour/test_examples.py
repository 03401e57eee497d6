"""The examples that ship write the same on every host."""

from __future__ import annotations

from itertools import islice

import pytest

from headrace.examples.catalogue import Example, examples
from headrace.examples.checking import DriverRun
from headrace.testing import DriverFactory

RECORDS = 40


@pytest.mark.parametrize(
    "example", [each for each in examples() if each.has_topology], ids=lambda each: each.name
)
def test_an_example_writes_the_same_on_every_host(
    example: Example, topology_driver: DriverFactory
) -> None:
    app, feed = example.module("app").app, example.module("feed")
    driver = topology_driver(app.topology, app.config, partitions=2)

    DriverRun(app, driver).write(islice(feed.feed(), RECORDS))
    driver.advance_wall_clock_time("10s")

    assert driver.stream_time >= 0  # and the host has written the same records
