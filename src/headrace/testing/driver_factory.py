"""What the fixture `topology_driver` gives a test."""

from __future__ import annotations

from typing import Any, Protocol

from headrace.testing.driver import TopologyTestDriver
from headrace.topology.topology import Topology


class DriverFactory(Protocol):
    """Makes test drivers that are closed when the test ends."""

    def __call__(self, topology: Topology, **settings: Any) -> TopologyTestDriver:
        """Return a driver; takes what `TopologyTestDriver` takes."""
        ...
