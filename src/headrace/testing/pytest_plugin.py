"""The pytest fixtures of Headrace; pytest finds them when it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.config import StreamsConfig
    from headrace.testing.driver import TopologyTestDriver
    from headrace.testing.driver_factory import DriverFactory
    from headrace.testing.embedded import EmbeddedTopics
    from headrace.testing.kafka import RunningBroker
    from headrace.topology.topology import Topology


@pytest.fixture
def topology_driver() -> Iterator[DriverFactory]:
    """Return a function that makes a `TopologyTestDriver`; it is closed by itself."""
    # Imported here so that a test session that uses no driver does not pay for it.
    from headrace.testing.driver import TopologyTestDriver

    drivers: list[TopologyTestDriver] = []

    def make(
        topology: Topology, config: StreamsConfig | Mapping[str, Any] | None = None, **options: Any
    ) -> TopologyTestDriver:
        driver = TopologyTestDriver(topology, config, **options)
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[RunningBroker]:
    """Return a Kafka broker on loopback that all tests share; it ends with them.

    It needs Java 17, and Maven the first time. ``**kafka_broker.settings`` leads clients and
    applications to it.
    """
    from headrace.testing.kafka import start_broker

    with start_broker() as broker:
        yield broker


@pytest.fixture
def embedded_log(tmp_path: Path) -> EmbeddedTopics:
    """Return an embedded log of this test alone; ``**embedded_log.settings`` leads to it."""
    from headrace.testing.embedded import EmbeddedTopics

    return EmbeddedTopics(tmp_path / "headrace")
