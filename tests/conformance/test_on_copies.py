"""A copy answers as Kafka Streams' store did: the rows of each recorded query, in their order."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from headrace_conformance.build import config_of
from headrace_conformance.groups import Cases, built, differing, ends_in_error, groups
from headrace_conformance.hosts import run_joined, topics_of
from headrace_conformance.joined import join

from headrace.queries.store_views import open_store
from headrace.runtime.in_process import global_task_in
from headrace.runtime.plan import GLOBAL_SUBTOPOLOGY
from headrace.state.store_types.base import ChangelogRecord
from tests.runtime.changelogs import changes
from tests.runtime.hosting import InProcessHost
from tests.unit.queries.copied_stores import CopiedStore

CASES = {
    name: case
    for name, case in built().items()
    if any("query" in step for step in case[0]["steps"])
    and name not in differing()
    and not ends_in_error(case[1])
    and name != "stores/logging-off"  # its store has no changelog
}


class CopyHost(InProcessHost):
    """Shows copies of stores in place of the stores, if they have a changelog."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.copied: set[str] = set()
        """The stores that it has copied."""

    def store(self, name: str) -> Any:
        """Return a view of a new copy; of a store without changelog the store of its task."""
        query = self.query
        for topic, (subtopology, spec) in query.plan.changelogs.items():
            if spec.name != name:
                continue
            if subtopology == GLOBAL_SUBTOPOLOGY:
                [stage] = query.plan.global_stages()
                task = global_task_in(query._blobs, query.program, stage, 0)
            else:
                [task] = query.tasks_of(name)
            records = [
                ChangelogRecord(record.key or b"", record.value, record.timestamp)
                for record in changes(query.log, topic, 0)
            ]
            copy = CopiedStore(spec)
            shown = copy.apply(records, task.save().store_times.get(name, {}))
            self.copied.add(name)
            return open_store(shown, copy.store, 0)
        return super().store(name)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # scenarios drop records on purpose


@pytest.mark.parametrize("cases", [*groups(CASES)], ids=lambda cases: f"{len(cases)}-scenarios")
def test_copies_answer_recorded_queries(cases: Cases, tmp_path: Path) -> None:
    config = config_of(next(iter(cases.values()))[0])
    scenarios = {name: scenario for name, (scenario, _) in cases.items()}
    joined = join(scenarios, config, tmp_path / "kept")
    host = CopyHost(joined.topology, topics_of(joined), config, tmp_path / "state")

    runs = run_joined(joined, host, config, each_step=True)

    found = {name: run.differences(cases[name][1]) for name, run in runs.items()}
    assert {name: each for name, each in found.items() if each} == {}
    assert len(host.copied) >= len(cases)


def test_there_are_queries_of_every_kind_of_store() -> None:
    asked = {
        definition["type"]
        for scenario, _ in CASES.values()
        for definition in scenario.get("stores", ())
    }

    assert asked >= {"key_value", "timestamped_key_value", "window", "timestamped_window"}
    assert asked >= {"session", "versioned"}
    assert (
        sum("query" in step for scenario, _ in CASES.values() for step in scenario["steps"]) > 100
    )
