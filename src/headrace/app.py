"""KafkaStreams: a topology together with the settings it runs with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from headrace.config import Settings, StreamsConfig
from headrace.config.topology_defaults import topology_defaults
from headrace.errors import StreamsError
from headrace.topology.topology import Topology


class KafkaStreams:
    """An application: what to run, and how. Making one starts nothing and imports no Spark.

    Args:
        topology: What to run.
        config: Settings, as a config or a mapping of Kafka's dotted names.
        settings: Settings as keywords; they win over ``config``.

    Raises:
        TopologyError: The program is wrong, or a step has no serde.
        ConfigError: The settings are wrong, or there is no application id.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | None = None,
        /,
        **settings: Unpack[Settings],
    ) -> None:
        self.config = StreamsConfig.merged(config, settings)
        """The settings, all of them."""
        self.config.require_application_id()
        topology.lowered(topology_defaults(self.config))  # refuses what could not run
        self.topology = topology
        """What runs."""

    def run(self) -> int:
        """Run until stopped, as the command line does.

        Raises:
            StreamsError: This version has no runtime yet; test drivers run the topology.
        """
        msg = (
            f"Application {self.config.application_id!r} cannot run yet: this version of Headrace "
            "has no Spark runtime. Run its topology with `headrace.testing.TopologyTestDriver`."
        )
        raise StreamsError(msg)
