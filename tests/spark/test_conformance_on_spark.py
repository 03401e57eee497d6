"""Scenarios on real Spark, many in one query, on either log."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from pathlib import Path

import pytest
from headrace_conformance.build import APPLICATION_ID, Scenario, config_of
from headrace_conformance.compare import Recorded
from headrace_conformance.groups import Cases, built, differing, ends_in_error, groups
from headrace_conformance.hosts import HostedRun, PatientHost, own_topics, run_joined, topics_of
from headrace_conformance.joined import join
from headrace_conformance.run import run_scenario

from headrace.brokers import open_log
from tests.kafka_broker import RunningBroker
from tests.spark.hosting import SparkHost

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("java"),
    pytest.mark.nightly("scenarios"),
]

CASES = {name: case for name, case in built().items() if name not in differing()}
JOINED = list(groups(CASES))


def begins_at_zero(name: str) -> bool:
    return any(step["ts"] == 0 for step in CASES[name][0]["steps"] if "pipe" in step)


def can_be_on_kafka(name: str) -> bool:
    """Return whether a scenario shows neither time 0, if not by its input, nor the application.

    Kafka's client cannot write that timestamp, and each query has a name of its own there. A broker
    takes no record of the future.
    """
    scenario, golden = CASES[name]
    text = json.dumps(golden["topics"])
    is_past = all(step["ts"] < time.time() * 1_000 for step in scenario["steps"] if "pipe" in step)
    return (
        is_past and APPLICATION_ID not in text and ('"ts": 0' not in text or begins_at_zero(name))
    )


def later(scenario: Scenario) -> tuple[Scenario, Recorded]:
    """Return a scenario that takes place a millisecond later, and what the test driver makes of it.

    The driver ends as recorded with the scenario itself: `tests/conformance` holds it to that.
    """
    steps = [
        {**step, "ts": step["ts"] + 1} if "pipe" in step else step for step in scenario["steps"]
    ]
    moved = {**scenario, "steps": steps}
    return moved, run_scenario(moved)


def run(cases: Cases, folder: Path) -> dict[str, HostedRun]:
    first, golden = next(iter(cases.values()))
    config = config_of(first).with_settings(state_dir=folder / "state", num_stream_threads=2)
    joined = join({name: case[0] for name, case in cases.items()}, config, folder / "kept")
    with SparkHost(joined.topology, topics_of(joined), config) as host:
        return run_joined(joined, host, config, each_step=ends_in_error(golden))


def run_on_kafka(cases: Cases, folder: Path, address: str) -> dict[str, HostedRun]:
    first, golden = next(iter(cases.values()))
    config = config_of(first).with_settings(
        application_id=next(iter(cases)).replace("/", "-"),
        state_dir=folder / "state",
        num_stream_threads=2,
        bootstrap_servers=address,
        request_timeout="30s",
    )
    joined = join({name: case[0] for name, case in cases.items()}, config, folder / "kept")
    try:
        with SparkHost(joined.topology, topics_of(joined), config) as host:
            patient = PatientHost(host, own_topics(joined.topology, config))
            return run_joined(joined, patient, config, each_step=ends_in_error(golden))
    finally:
        log = open_log(config)
        for topic in topics_of(joined):  # the next query has topics of the same names
            log.delete_topic(topic)
        log.close()


def check(runs: dict[str, HostedRun], cases: Cases) -> None:
    found = {name: hosted.differences(cases[name][1]) for name, hosted in runs.items()}
    failures = [f"{name}\n  " + "\n  ".join(each) for name, each in found.items() if each]
    assert not failures, "\n".join(failures)


def group_id(cases: Cases) -> str:
    return f"{next(iter(cases))}-and-{len(cases) - 1}"


@pytest.mark.parametrize("cases", JOINED, ids=group_id)
def test_scenarios_on_the_embedded_log_end_as_in_kafka_streams(
    cases: Cases, tmp_path: Path
) -> None:
    check(run(cases, tmp_path), cases)


@pytest.mark.parametrize(
    "cases",
    list(groups({name: case for name, case in CASES.items() if can_be_on_kafka(name)})),
    ids=group_id,
)
def test_scenarios_on_kafka_end_as_in_kafka_streams(
    cases: Cases, kafka: RunningBroker, tmp_path: Path
) -> None:
    moved = {name: later(case[0]) if begins_at_zero(name) else case for name, case in cases.items()}

    check(run_on_kafka(moved, tmp_path, kafka.address), moved)


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
