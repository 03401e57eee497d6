"""The pytest fixture."""

from __future__ import annotations

from typing import Any

from headrace import Processor, Record, Topology
from headrace.testing import DriverFactory
from headrace.testing.pytest_plugin import topology_driver as fixture

closed: list[str] = []


class Closes(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None: ...

    def close(self) -> None:
        closed.append("closed")


def topology() -> Topology:
    made = Topology().add_source("source", "in", key=str, value=int)
    return made.add_processor("p", Closes, "source")


def test_the_fixture_makes_drivers_with_settings(topology_driver: DriverFactory) -> None:
    driver = topology_driver(topology(), partitions=2)

    assert len(driver.metrics()) == 6


def test_the_fixture_closes_every_driver_it_made() -> None:
    steps = fixture.__wrapped__()  # type: ignore[attr-defined]
    make = next(steps)
    make(topology()), make(topology())
    closed.clear()

    assert next(steps, "ended") == "ended"

    assert closed == ["closed", "closed"]
