"""Runs a scenario on the test driver and tells what happened in the shape of a golden."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

from headrace import Headers, Serdes, StreamsError, Topology
from headrace.testing import TestOutputTopic, TopologyTestDriver
from headrace_conformance import stores
from headrace_conformance.build import APPLICATION_ID, Scenario, build_topology, config_of
from headrace_conformance.handles import Build
from headrace_conformance.serdes import decoded, encoded, value_of
from headrace_conformance.values import json_of

Result: TypeAlias = dict[str, Any]
Step: TypeAlias = Mapping[str, Any]

_DROPPED = "dropped-records-total"


def run_scenario(scenario: Scenario) -> Result:
    """Return what Headrace does with a scenario.

    A topology that is refused gives ``build_error``. An error while running ends the scenario.
    Whatever is not an error of Headrace's own tree is a defect, and is raised.
    """
    build = Build()
    clock = scenario.get("config", {}).get("wall_clock", 0)
    try:
        config = config_of(scenario)
        topology = build_topology(scenario, config, build)
        driver = TopologyTestDriver(topology, config, initial_wall_clock_time=clock)
    except StreamsError as error:
        return {"build_error": _described(error)}
    with driver:
        return Run(scenario, build, driver, topology).result()


def run_partitioned(scenario: Scenario, partitions: int) -> tuple[dict[str, list[Any]], int]:
    """Return what is written to each topic, and how many records are dropped, over partitions."""
    build, config = Build(), config_of(scenario)
    topology = build_topology(scenario, config, build)
    with TopologyTestDriver(topology, config, partitions=partitions) as driver:
        return Run(scenario, build, driver, topology).written()


class Run:
    """One scenario on one driver."""

    def __init__(
        self, scenario: Scenario, build: Build, driver: TopologyTestDriver, topology: Topology
    ) -> None:
        self._scenario = scenario
        self._build = build
        self._driver = driver
        self._topology = topology
        self._outputs: dict[str, TestOutputTopic[bytes, bytes]] = {}
        self._dropped = 0.0

    def written(self) -> tuple[dict[str, list[Any]], int]:
        """Do the steps and return the records of each topic, and how many were dropped."""
        return _records_by_topic(self._steps()), int(sum(self._dropped_by_task().values()))

    def result(self) -> Result:
        """Do the steps and return everything a golden has."""
        steps = self._steps()
        topics = _records_by_topic(steps)
        dropped = self._dropped_by_task()
        return {
            "steps": steps,
            "topics": dict(sorted(topics.items())),
            "stores": {
                name: self._contents(name)
                for name in sorted(self._build.stores)
                if self._driver.get_state_store(name) is not None
            },
            "dropped": int(sum(dropped.values())),
            "dropped_by_task": dropped,
            "effects": self._effects(),
            "names": self._names(),
            "describe": str(self._topology.describe()).rstrip("\n").split("\n"),
        }

    def _steps(self) -> list[Any]:
        done: list[Any] = []
        for step in self._scenario["steps"]:
            try:
                done.append(self._step(step))
            except StreamsError as error:
                return [*done, {"error": _described(error), "out": {}}]
        return done

    def _step(self, step: Step) -> Any:
        if "query" in step:
            return {"rows": self._rows(step["query"])}
        if "snapshot" in step:
            return {"store": self._contents(step["snapshot"])}
        if "pipe" in step:
            self._pipe(step)
        else:
            self._driver.advance_wall_clock_time(step["advance_wall_clock"])
        happened: dict[str, Any] = {"out": self._written()}
        before, self._dropped = self._dropped, sum(self._dropped_by_task().values())
        if self._dropped > before:
            happened["dropped"] = int(self._dropped - before)
        return happened

    def _pipe(self, step: Step) -> None:
        key, value = self._serdes_of(step["pipe"])
        topic = self._driver.create_input_topic(
            step["pipe"], key=Serdes.bytes(), value=Serdes.bytes()
        )
        topic.pipe_input(
            _raw(step, "key", key),
            _raw(step, "value", value),
            timestamp=step.get("ts"),
            headers=Headers((name, _header(text)) for name, text in step.get("headers", ())),
        )

    def _serdes_of(self, topic: str) -> tuple[str, str]:
        inputs = self._build.inputs
        if topic in inputs:
            return inputs[topic]
        matching = (serdes for name, serdes in inputs.items() if re.fullmatch(name, topic))
        return next(matching, ("string", "string"))

    def _written(self) -> dict[str, Any]:
        written = {}
        for topic, (key, value) in sorted(self._build.outputs.items()):
            if topic not in self._outputs:
                self._outputs[topic] = self._driver.create_output_topic(
                    topic, key=Serdes.bytes(), value=Serdes.bytes()
                )
            records = self._outputs[topic].read_records_to_list()
            if records:
                written[topic] = [_record_json(record, key, value) for record in records]
        return written

    def _rows(self, query: Step) -> list[Any]:
        kind = self._build.stores[query["store"]]
        ends = ("from", "to") if kind.kind.endswith("key_value") else ()
        keys = {part: value_of(kind.key, query[part]) for part in ("key", *ends) if part in query}
        store = self._driver.get_state_store(query["store"])
        return [stores.shown(row) for row in stores.rows(store, kind.kind, {**query, **keys})]

    def _contents(self, name: str) -> Any:
        kind = self._build.stores[name]
        store = self._driver.get_state_store(name)
        entries = stores.contents(store, kind.kind, self._keys_piped(kind.key))
        return {"type": kind.kind, "entries": [stores.shown(entry) for entry in entries]}

    def _keys_piped(self, serde: str) -> list[Any]:
        keys = {
            encoded(serde, step["key"]): value_of(serde, step["key"])
            for step in self._scenario["steps"]
            if step.get("key") is not None and self._serdes_of(step["pipe"])[0] == serde
        }
        return list(keys.values())

    def _effects(self) -> dict[str, Any]:
        printed = {name: file.getvalue().splitlines() for name, file in self._build.printed.items()}
        effects = self._build.effects | printed
        return {name: effects[name] for name in sorted(effects) if effects[name]}

    def _dropped_by_task(self) -> dict[str, float]:
        dropped: defaultdict[str, float] = defaultdict(float)
        for metric, value in self._driver.metrics().items():
            if metric.name == _DROPPED:
                dropped[dict(metric.tags)["task-id"]] += value
        return dict(dropped)

    def _names(self) -> dict[str, list[str]]:
        nodes = [
            node
            for subtopology in self._topology.describe().subtopologies
            for node in subtopology.nodes
        ]
        stores = {store for node in nodes for store in getattr(node, "stores", ())}
        return {
            "processors": sorted(node.name for node in nodes),
            "stores": sorted(stores),
            "internal_topics": self._internal_topics(stores),
        }

    def _internal_topics(self, stores: set[str]) -> list[str]:
        prefix = f"{APPLICATION_ID}-"
        produced = self._driver.produced_topic_names()
        written = {topic for topic in produced if topic.startswith(prefix)}
        return sorted(written | {f"{prefix}{store}-changelog" for store in stores})


def _records_by_topic(steps: list[Any]) -> dict[str, list[Any]]:
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    for step in steps:
        for topic, records in step.get("out", {}).items():
            topics[topic] += records
    return dict(topics)


def _described(error: BaseException) -> dict[str, Any]:
    causes = []
    cause = error.__cause__
    while cause is not None:
        causes.append(type(cause).__name__)
        cause = cause.__cause__
    return {"type": type(error).__name__, "causes": causes, "message": str(error)}


def _raw(step: Step, part: str, serde: str) -> bytes | None:
    if f"raw_{part}" in step:
        text = step[f"raw_{part}"]
        return None if text is None else bytes.fromhex(text)
    return encoded(serde, step.get(part))


def _header(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _record_json(record: Any, key: str, value: str) -> dict[str, Any]:
    shown = {
        "key": json_of(decoded(key, record.key)),
        "value": json_of(decoded(value, record.value)),
        "ts": record.timestamp,
    }
    if record.headers:
        shown["headers"] = [
            [name, None if text is None else text.decode()] for name, text in record.headers
        ]
    return shown
