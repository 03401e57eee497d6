"""The type of the fixture `topology_driver`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headrace.config import StreamsConfig
from headrace.testing.driver import TopologyTestDriver
from headrace.topology.topology import Topology


class DriverFactory(Protocol):
    """Makes test drivers that are closed when the test ends."""

    def __call__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> TopologyTestDriver:
        """Return a driver. The arguments are those of `TopologyTestDriver`."""
        ...
