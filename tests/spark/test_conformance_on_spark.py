"""Scenarios on real Spark, many in one query: all on the embedded log, a tenth of them on Kafka."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from headrace_conformance.build import config_of
from headrace_conformance.cuts import depends_on_clock
from headrace_conformance.groups import Cases, built, differing, ends_in_error, groups
from headrace_conformance.hosts import HostedRun, run_joined, topics_of
from headrace_conformance.joined import join

from tests.kafka_broker import RunningBroker
from tests.spark.hosting import SparkHost

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("java")]

CASES = {name: case for name, case in built().items() if name not in differing()}
JOINED = list(groups(CASES))


def tenth() -> Cases:
    """Return a tenth of the scenarios, of each family about as many.

    Kafka's client cannot write timestamp 0, so that families whose records all begin there have
    none. Foreign-key joins talk to themselves through topics: nobody sees when they have finished,
    so `test_operators` waits for what they say last.
    """
    plain = {
        name: (scenario, golden)
        for name, (scenario, golden) in CASES.items()
        if not scenario.get("config")
        and not ends_in_error(golden)
        and not depends_on_clock(scenario)
        and not name.startswith("joins-foreign-key/")
        and all(step.get("ts") for step in scenario["steps"] if "pipe" in step)
        and '"ts":0' not in json.dumps(golden["topics"]).replace(" ", "")
    }
    families: dict[str, list[str]] = {}
    for name in plain:
        families.setdefault(name.partition("/")[0], []).append(name)
    in_turn = [name for names in zip_longest(*families.values()) for name in names if name]
    return {name: plain[name] for name in sorted(in_turn[: len(CASES) // 10])}


def run(cases: Cases, folder: Path, **settings: Any) -> dict[str, HostedRun]:
    first, golden = next(iter(cases.values()))
    config = config_of(first).with_settings(
        state_dir=folder / "state", num_stream_threads=2, **settings
    )
    joined = join({name: case[0] for name, case in cases.items()}, config, folder / "kept")
    with SparkHost(joined.topology, topics_of(joined), config) as host:
        return run_joined(joined, host, config, each_step=ends_in_error(golden))


def check(cases: Cases, folder: Path, **settings: Any) -> None:
    runs = run(cases, folder, **settings)
    found = {name: hosted.differences(cases[name][1]) for name, hosted in runs.items()}
    told = [f"{name}\n  " + "\n  ".join(each) for name, each in found.items() if each]
    assert not told, "\n".join(told)


@pytest.mark.parametrize(
    "cases", JOINED, ids=lambda cases: f"{next(iter(cases))}-and-{len(cases) - 1}"
)
def test_scenarios_on_the_embedded_log_end_as_in_kafka_streams(
    cases: Cases, tmp_path: Path
) -> None:
    check(cases, tmp_path)


def test_a_tenth_of_the_scenarios_on_kafka_ends_as_in_kafka_streams(
    kafka: RunningBroker, tmp_path: Path
) -> None:
    check(tenth(), tmp_path, bootstrap_servers=kafka.address, request_timeout="30s")


def test_a_store_that_ends_otherwise_is_found(tmp_path: Path) -> None:
    name = "aggregate/aggregate"
    scenario, golden = CASES[name]
    [store] = golden["stores"]
    other = deepcopy(golden)
    other["stores"][store]["entries"][0]["value"] = "another"

    hosted = run({name: (scenario, golden)}, tmp_path)[name]

    assert hosted.differences(golden) == []
    [found] = hosted.differences(other)
    assert found.startswith(f"store {store}")
    assert '"another"' in found
