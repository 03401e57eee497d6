"""The pytest fixture `topology_driver`, found by pytest when Headrace is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.config import StreamsConfig
    from headrace.testing.driver import TopologyTestDriver
    from headrace.testing.driver_factory import DriverFactory
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
