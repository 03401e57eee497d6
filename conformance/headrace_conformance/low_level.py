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


def add_to_topology(topology: Topology, subtopology: Operation, build: Build) -> None:
    """Add one entry of a scenario's ``topology``."""
    add = {
        "source": _add_source,
        "processor": _add_processor,
        "sink": _add_sink,
        "store": _add_store,
        "connect": _connect,
        "global_store": _add_global_store,
    }[subtopology["add"]]
    add(topology, subtopology, build)


def _serdes(subtopology: Operation) -> tuple[str, str]:
    return subtopology.get("key", "string"), subtopology.get("value", "string")


def _options(subtopology: Operation) -> dict[str, Any]:
    key, value = _serdes(subtopology)
    return {"key": serde(key), "value": serde(value)}


def _add_source(topology: Topology, subtopology: Operation, build: Build) -> None:
    options = _options(subtopology)
    extractor = extractor_of(subtopology.get("timestamp_extractor"))
    if extractor is not None:
        options["timestamp_extractor"] = extractor
    if "pattern" in subtopology:
        build.inputs[subtopology["pattern"]] = _serdes(subtopology)
        topology.add_source(subtopology["name"], re.compile(subtopology["pattern"]), **options)
        return
    topics = subtopology["topics"] if "topics" in subtopology else [subtopology["topic"]]
    build.inputs |= dict.fromkeys(topics, _serdes(subtopology))
    topology.add_source(subtopology["name"], *topics, **options)


def _add_processor(topology: Topology, subtopology: Operation, build: Build) -> None:
    supplier = processor_supplier(subtopology["processor"], build.memory(subtopology["name"]), build.stores)
    topology.add_processor(subtopology["name"], supplier, *subtopology["parents"])
    if subtopology.get("stores"):
        topology.connect_processor_and_state_stores(subtopology["name"], *subtopology["stores"])


def _add_sink(topology: Topology, subtopology: Operation, build: Build) -> None:
    target: Any
    if "topic" in subtopology:
        build.outputs[subtopology["topic"]] = _serdes(subtopology)
        target = subtopology["topic"]
    else:
        build.outputs |= dict.fromkeys(subtopology["topics"], _serdes(subtopology))
        choose = function(subtopology["topic_fn"])

        def target(key: Any, value: Any, _context: Any) -> Any:
            return choose(key, value)

    topology.add_sink(subtopology["name"], target, *subtopology["parents"], **_options(subtopology))


def _add_store(topology: Topology, subtopology: Operation, build: Build) -> None:
    build.stores[subtopology["name"]] = kind_of(subtopology)
    topology.add_state_store(store_builder(subtopology), *subtopology.get("processors", ()))


def _connect(topology: Topology, subtopology: Operation, _build: Build) -> None:
    topology.connect_processor_and_state_stores(subtopology["processor"], *subtopology["stores"])


def _add_global_store(topology: Topology, subtopology: Operation, build: Build) -> None:
    definition = subtopology["store"]
    build.stores[definition["name"]] = kind_of(definition)
    build.inputs[subtopology["topic"]] = _serdes(subtopology)
    supplier = processor_supplier(subtopology["processor"], build.memory(subtopology["name"]), build.stores)
    topology.add_global_store(
        store_builder(definition, logging=False),
        subtopology["source"],
        subtopology["topic"],
        subtopology["name"],
        supplier,
        **_options(subtopology),
    )
