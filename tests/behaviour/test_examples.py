"""The examples that ship, and their variants, write the same on every host."""

from __future__ import annotations

import pytest

from headrace.examples.catalogue import examples
from headrace.examples.checking import DriverRun
from headrace.testing import DriverFactory
from tests.behaviour.example_inputs import inputs


def test_every_example_with_a_topology_has_input() -> None:
    missing = {each.name for each in examples() if each.has_topology} - {*inputs()}

    assert missing == {"reprocess", "intermediate-topic"}  # two versions; see `tests/spark`


@pytest.mark.parametrize("name", inputs())
def test_an_example_writes_the_same_on_every_host(
    name: str, topology_driver: DriverFactory
) -> None:
    given = inputs()[name]
    driver = topology_driver(
        given.app.topology,
        given.app.config,
        partitions=2,
        commit_each_record=False,
        initial_wall_clock_time=given.now,
    )
    run = DriverRun(given.app, driver)

    for step in given.steps:
        if isinstance(step, str):
            driver.advance_wall_clock_time(step)
        else:
            run.write(step)
        for _ in given.app.topology.describe().subtopologies:  # a result passes one per commit
            driver.commit()

    # The fixture compares all of it with what the host has written.
    written = driver.produced_topic_names()
    assert given.results <= written, given.results - written
