"""Scenarios that add sources, processors, sinks and stores by hand instead of using the DSL."""

from __future__ import annotations

import re
from typing import Any

from headrace import Topology
from headrace_conformance.functions import function
from headrace_conformance.handles import Build, Operation
from headrace_conformance.options import extractor_of
from headrace_conformance.processors import processor_supplier
from headrace_conformance.serdes import serde
from headrace_conformance.stores import kind_of, store_builder


def add_to_topology(topology: Topology, part: Operation, build: Build) -> None:
    """Add one entry of a scenario's ``topology``."""
    add = {
        "source": _add_source,
        "processor": _add_processor,
        "sink": _add_sink,
        "store": _add_store,
        "connect": _connect,
        "global_store": _add_global_store,
    }[part["add"]]
    add(topology, part, build)


def _serdes(part: Operation) -> tuple[str, str]:
    return part.get("key", "string"), part.get("value", "string")


def _options(part: Operation) -> dict[str, Any]:
    key, value = _serdes(part)
    return {"key": serde(key), "value": serde(value)}


def _add_source(topology: Topology, part: Operation, build: Build) -> None:
    options = _options(part)
    extractor = extractor_of(part.get("timestamp_extractor"))
    if extractor is not None:
        options["timestamp_extractor"] = extractor
    if "pattern" in part:
        build.inputs[part["pattern"]] = _serdes(part)
        topology.add_source(part["name"], re.compile(part["pattern"]), **options)
        return
    topics = part["topics"] if "topics" in part else [part["topic"]]
    build.inputs |= dict.fromkeys(topics, _serdes(part))
    topology.add_source(part["name"], *topics, **options)


def _add_processor(topology: Topology, part: Operation, build: Build) -> None:
    supplier = processor_supplier(part["processor"], build.memory(part["name"]), build.stores)
    topology.add_processor(part["name"], supplier, *part["parents"])
    if part.get("stores"):
        topology.connect_processor_and_state_stores(part["name"], *part["stores"])


def _add_sink(topology: Topology, part: Operation, build: Build) -> None:
    target: Any
    if "topic" in part:
        build.outputs[part["topic"]] = _serdes(part)
        target = part["topic"]
    else:
        build.outputs |= dict.fromkeys(part["topics"], _serdes(part))
        choose = function(part["topic_fn"])

        def target(key: Any, value: Any, _context: Any) -> Any:
            return choose(key, value)

    topology.add_sink(part["name"], target, *part["parents"], **_options(part))


def _add_store(topology: Topology, part: Operation, build: Build) -> None:
    build.stores[part["name"]] = kind_of(part)
    topology.add_state_store(store_builder(part), *part.get("processors", ()))


def _connect(topology: Topology, part: Operation, _build: Build) -> None:
    topology.connect_processor_and_state_stores(part["processor"], *part["stores"])


def _add_global_store(topology: Topology, part: Operation, build: Build) -> None:
    definition = part["store"]
    build.stores[definition["name"]] = kind_of(definition)
    build.inputs[part["topic"]] = _serdes(part)
    supplier = processor_supplier(part["processor"], build.memory(part["name"]), build.stores)
    topology.add_global_store(
        store_builder(definition, logging=False),
        part["source"],
        part["topic"],
        part["name"],
        supplier,
        **_options(part),
    )
