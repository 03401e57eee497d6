"""Scenarios on the Spark runtime without Spark: planner, readers, stages and sink in process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from headrace_conformance.build import build_topology, config_of
from headrace_conformance.groups import (
    Cases,
    built,
    differing,
    ends_in_error,
    groups,
    random_programs,
)
from headrace_conformance.handles import Build
from headrace_conformance.hosts import HostedRun, run_joined, topics_of
from headrace_conformance.joined import join
from headrace_conformance.run import Run
from headrace_conformance.scenarios import load_golden, load_scenario, scenario_names

from headrace import KafkaStreams, StreamsError
from headrace.errors import RecordRefusedError
from tests.runtime.changelogs import changelogs_that_differ
from tests.runtime.hosting import InProcessHost
from tests.runtime.separate_tasks import SeparateTasks

pytestmark = pytest.mark.tier("test")  # takes minutes

ALL = built() | random_programs()
DIFFERING = differing()
GROUPS = list(groups({name: case for name, case in ALL.items() if name not in DIFFERING}))
REFUSED = [name for name in scenario_names() if "build_error" in load_golden(name)]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # scenarios drop records on purpose


def of_kind(*kinds: str) -> list[str]:
    return [name for name, kind in DIFFERING.items() if kind in kinds]


def run(cases: Cases, folder: Path, *, each_step: bool = False) -> dict[str, HostedRun]:
    config = config_of(next(iter(cases.values()))[0])
    scenarios = {name: scenario for name, (scenario, _) in cases.items()}
    joined = join(scenarios, config, folder / "kept")
    host = InProcessHost(joined.topology, topics_of(joined), config, folder / "state")
    runs = run_joined(joined, host, config, each_step=each_step)
    assert changelogs_that_differ(host.query) == []
    return runs


def differences(cases: Cases, runs: dict[str, HostedRun]) -> str:
    found = {name: run.differences(cases[name][1]) for name, run in runs.items()}
    return "\n".join(f"{name}\n  " + "\n  ".join(each) for name, each in found.items() if each)


def group_id(cases: Cases) -> str:
    return f"{next(iter(cases))}-and-{len(cases) - 1}"


@pytest.mark.parametrize("cases", [group for group in GROUPS if len(group) > 1], ids=group_id)
@pytest.mark.parametrize(
    "each_step",
    [
        pytest.param(False, id="cut-where-needed"),
        pytest.param(True, id="cut-at-each-step", marks=pytest.mark.nightly("cuts")),
    ],
)
def test_joined_scenarios_end_as_in_kafka_streams(
    cases: Cases, each_step: bool, tmp_path: Path
) -> None:
    runs = run(cases, tmp_path, each_step=each_step)

    assert not differences(cases, runs)


@pytest.mark.parametrize("cases", [group for group in GROUPS if len(group) == 1], ids=group_id)
def test_a_scenario_alone_ends_as_in_kafka_streams(cases: Cases, tmp_path: Path) -> None:
    [(_, golden)] = cases.values()
    runs = run(cases, tmp_path, each_step=ends_in_error(golden))

    assert not differences(cases, runs)


def test_a_record_that_differs_is_found(tmp_path: Path) -> None:
    cases = built(["aggregate"])
    cases = {name: case for name, case in cases.items() if not ends_in_error(case[1])}
    first, second = [name for name in cases if not cases[name][0].get("config")][:2]
    chosen = {first: cases[first], second: cases[second]}
    runs = run(chosen, tmp_path)

    assert runs[first].differences(cases[second][1])


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_kafka_refuses_does_not_start(name: str, tmp_path: Path) -> None:
    scenario, golden = load_scenario(name), load_golden(name)

    with pytest.raises(StreamsError):
        start(name, (scenario, golden), tmp_path)


def start(name: str, case: tuple[Any, Any], folder: Path) -> None:
    scenario, _ = case
    config = config_of(scenario)
    KafkaStreams(build_topology(scenario, config, Build()), config)
    # An error in a processor's `init` shows in the first batch.
    error = run({name: case}, folder)[name].error
    if error is not None:
        raise error


@pytest.mark.parametrize("name", of_kind("one-task", "one-commit-per-batch"))
def test_the_difference_comes_from_separate_tasks(name: str, tmp_path: Path) -> None:
    scenario, golden = ALL[name]
    config, build = config_of(scenario), Build()
    topology = build_topology(scenario, config, build)
    with SeparateTasks(topology, config) as driver:
        separate = Run(scenario, build, driver, topology).result()
    hosted = run({name: ALL[name]}, tmp_path, each_step=True)[name]

    assert hosted.differences(golden)
    assert not hosted.differences(separate)


@pytest.mark.parametrize("name", of_kind("cache-outlives-its-store"))
def test_the_differences_are_windows_that_a_store_hides(name: str, tmp_path: Path) -> None:
    hosted = run({name: ALL[name]}, tmp_path, each_step=True)[name]

    [*found] = hosted.differences(ALL[name][1])
    assert found
    for difference in found:
        where, *lines = difference.split("\n")
        assert where.startswith("store ")
        assert all(line.strip().startswith("-{") for line in lines)


@pytest.mark.parametrize("name", of_kind("several-tasks"))
def test_the_difference_is_the_order_of_keys(name: str, tmp_path: Path) -> None:
    hosted = run({name: ALL[name]}, tmp_path, each_step=True)[name]

    golden = ALL[name][1]
    written: dict[str, list[Any]] = {}
    for step in hosted.result()["steps"]:
        for topic, records in step.get("out", {}).items():
            written.setdefault(topic, []).extend(records)
    assert {t: by_key(r) for t, r in written.items()} == {
        t: by_key(r) for t, r in golden["topics"].items()
    }


def by_key(records: list[Any]) -> dict[str, list[Any]]:
    keys: dict[str, list[Any]] = {}
    for record in records:
        keys.setdefault(str(record["key"]), []).append(record)
    return keys


@pytest.mark.parametrize(
    "name", [name for name in of_kind("not-on-a-log") if name != "errors/unknown-topic"]
)
def test_a_log_takes_no_negative_timestamp(name: str, tmp_path: Path) -> None:
    error = run({name: ALL[name]}, tmp_path, each_step=True)[name].error

    assert isinstance(error, RecordRefusedError)
    assert "timestamp is negative" in str(error)


def test_the_list_names_scenarios_that_there_are() -> None:
    assert DIFFERING.keys() <= ALL.keys()
