"""The settings of an application that its topology depends on."""

from __future__ import annotations

from headrace.config.streams_config import StreamsConfig
from headrace.topology.lower import TopologyDefaults


def topology_defaults(config: StreamsConfig) -> TopologyDefaults:
    """Return the part of the settings that a topology is built with."""
    return TopologyDefaults(
        key_serde=config.default_key_serde,
        value_serde=config.default_value_serde,
        persistent_stores=config.default_dsl_store == "rocksdb",
        optimizations=frozenset(config.topology_optimization),
        explicit_names=config.ensure_explicit_internal_resource_naming,
    )
