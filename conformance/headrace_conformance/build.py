"""Scenarios as Headrace topologies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace import StreamsConfig, Topology
from headrace_conformance.aggregations import AGGREGATIONS
from headrace_conformance.handles import Build, Builder, Handle, Operation, named
from headrace_conformance.low_level import add_to_topology
from headrace_conformance.options import extractor_of, materialized_of
from headrace_conformance.processors import processor_supplier
from headrace_conformance.serdes import serde
from headrace_conformance.stores import kind_of, store_builder
from headrace_conformance.stream_operations import STREAM_OPERATIONS, add_store
from headrace_conformance.table_operations import JOINS, TABLE_OPERATIONS

Scenario = Mapping[str, Any]

APPLICATION_ID = "oracle"
"""The name that goldens were recorded under; it begins the names of internal topics."""

_OPERATIONS: Mapping[str, Mapping[str, Builder]] = {
    "stream": {**STREAM_OPERATIONS, **JOINS},
    "table": {**TABLE_OPERATIONS, **JOINS},
}


def config_of(scenario: Scenario) -> StreamsConfig:
    """Return the settings of a scenario; nothing is cached unless it says so."""
    given = scenario.get("config", {})
    settings: dict[str, Any] = {
        "application_id": APPLICATION_ID,
        "statestore_cache_max_bytes": given.get("cache", 0),
    }
    settings |= {
        keyword: given[name]
        for name, keyword in (
            ("optimization", "topology_optimization"),
            ("max_task_idle_ms", "max_task_idle"),
            ("store", "default_dsl_store"),
            ("deserialization_handler", "deserialization_exception_handler"),
            ("processing_handler", "processing_exception_handler"),
            ("production_handler", "production_exception_handler"),
            ("dead_letter_queue", "errors_dead_letter_queue_topic_name"),
            ("ensure_explicit_naming", "ensure_explicit_internal_resource_naming"),
        )
        if name in given
    }
    if "timestamp_extractor" in given:
        settings["default_timestamp_extractor"] = extractor_of(given["timestamp_extractor"])
    return StreamsConfig(**settings)


def build_topology(scenario: Scenario, config: StreamsConfig, build: Build) -> Topology:
    """Return the topology of a scenario; ``build`` learns what was made on the way.

    Raises:
        TopologyError: The scenario is one that cannot be built.
    """
    if "dead_letter_queue" in scenario.get("config", {}):
        build.outputs[scenario["config"]["dead_letter_queue"]] = ("bytes", "bytes")
    if "topology" in scenario:
        topology = Topology()
        for part in scenario["topology"]:
            add_to_topology(topology, part, build)
        return topology
    for definition in scenario.get("stores", []):
        build.stores[definition["name"]] = kind_of(definition)
        build.builder.add_state_store(store_builder(definition))
    for source in scenario.get("sources", []):
        _add_source(build, source)
    for operation in scenario.get("operations", []):
        _add_operation(build, operation)
    return build.builder.build(config)


def _add_source(build: Build, source: Operation) -> None:
    key, value = source.get("key", "string"), source.get("value", "string")
    options: dict[str, Any] = {"key": serde(key), "value": serde(value)} | named(source)
    extractor = extractor_of(source.get("timestamp_extractor"))
    if extractor is not None:
        options["timestamp_extractor"] = extractor
    for topic in source.get("topics", [source.get("topic", source.get("pattern"))]):
        build.inputs[topic] = (key, value)
    if source["type"] == "global_store":
        _add_global_store(build, source, options)
    elif source["type"] == "stream":
        stream = build.builder.stream(_topics(source), **options)
        build.handles[source["id"]] = Handle("stream", stream, key, value)
    else:
        _add_table(build, source, Handle(source["type"], None, key, value), options)


def _topics(source: Operation) -> Any:
    if "pattern" in source:
        return re.compile(source["pattern"])
    return source["topics"] if "topics" in source else source["topic"]


def _add_table(build: Build, source: Operation, table: Handle, options: dict[str, Any]) -> None:
    add_store(build, source, table)
    add = build.builder.table if table.shape == "table" else build.builder.global_table
    materialized = materialized_of(source, table.key, table.value)
    target = add(source["topic"], materialized=materialized, **options)
    build.handles[source["id"]] = table.becoming(target, {})


def _add_global_store(build: Build, source: Operation, options: dict[str, Any]) -> None:
    definition = source["store"]
    build.stores[definition["name"]] = kind_of(definition)
    supplier = processor_supplier(
        source["processor"], build.memory(definition["name"]), build.stores
    )
    store = store_builder(definition, logging=False)
    build.builder.add_global_store(store, source["topic"], supplier, **options)


def _add_operation(build: Build, operation: Operation) -> None:
    inputs = [build.handles[name] for name in operation["in"]]
    known = _OPERATIONS.get(inputs[0].shape, AGGREGATIONS)
    if operation["op"] not in known:
        msg = f"There is no operation {operation['op']!r} on a {inputs[0].shape}."
        raise ValueError(msg)
    result = known[operation["op"]](build, operation, inputs)
    if result is not None:
        build.handles[operation["id"]] = result
