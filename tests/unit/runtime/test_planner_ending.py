"""The end of a query that stops at the current ends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from headrace import LeadershipLostError, StreamsBuilder
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.planning.planner import Planner
from headrace.runtime.run_files import Control, PlannerStatus
from tests.module_time import patch_time
from tests.unit.runtime.planning import (
    Planning,
    append,
    copying,
    name,
    planning,
    scheduling,
)


def copying_twice(builder: StreamsBuilder) -> None:
    copying(builder)
    builder.stream("out", key=str, value=int).to("copies")


def test_a_query_that_has_read_all_records_runs_due_punctuations_once_and_ends(
    tmp_path: Path,
) -> None:
    plan = planning(scheduling, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    planner.stop_at_current_ends()
    read = planner.next(planner.first())
    plan.end_batch(0, TaskReport("0_0", next_due=1_010))

    plan.set_clock(2_000)
    called = planner.next(read)
    plan.end_batch(1, TaskReport("0_0", next_due=2_010))
    plan.set_clock(3_000)

    assert (called.offsets, called.clock) == ({"in": [3]}, 2_000)
    assert planner.next(called) is called


def test_tasks_with_buffered_records_are_called_until_they_have_processed_them(
    tmp_path: Path,
) -> None:
    plan = planning(scheduling, tmp_path, {"in": 1})
    planner = plan.planner()
    planner.stop_at_current_ends()
    first = planner.next(planner.first())
    plan.end_batch(0, TaskReport("0_0", next_due=first.clock, held=1))

    second = planner.next(first)
    plan.end_batch(1, TaskReport("0_0"))

    assert second is not first
    assert planner.next(second) is second


def test_output_of_the_last_task_call_is_read_back_and_no_punctuation_is_due_again(
    tmp_path: Path,
) -> None:
    def build(builder: StreamsBuilder) -> None:
        scheduling(builder)
        builder.stream("out", key=str, value=int).to("copies")

    plan = planning(build, tmp_path, {"in": 1, "out": 1})
    planner = plan.planner()
    planner.stop_at_current_ends()
    called = planner.next(planner.first())
    plan.end_batch(0, TaskReport("0_0", next_due=1_010))
    append(plan.log, "out", 1)
    plan.set_clock(2_000)

    read = planner.next(called)
    plan.end_batch(1, TaskReport("0_0", next_due=1_010))

    assert (read.offsets["out"], read.clock) == ([1], 1_000)
    assert planner.next(read) is read


def paused(folder: Path) -> tuple[Planning, Planner]:
    """Return an application that is paused before it has read its three records."""
    plan = planning(copying, folder, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    planner.stop_at_current_ends()
    plan.run_files.write(Control(paused=True))
    return plan, planner


def resume_after(plan: Planning, pauses: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Resume an application when its planner has waited a number of times; return the waits."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == pauses:
            plan.run_files.write(Control(clock=1_000))

    patch_time(monkeypatch, "headrace.runtime.planning.planner", sleep=sleep)
    return waits


def test_a_paused_application_does_not_end_before_it_has_read_all_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, planner = paused(tmp_path)
    waits = resume_after(plan, 5, monkeypatch)

    end = planner.next(planner.first())

    assert end.offsets == {"in": [3]}
    assert len(waits) == 5


def test_a_paused_application_stops_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, planner = paused(tmp_path)
    start = planner.first()
    patch_time(
        monkeypatch,
        "headrace.runtime.planning.planner",
        sleep=lambda _seconds: plan.run_files.write(Control(paused=True, stopping=True)),
    )

    assert planner.next(start) is start
    assert plan.run_files.read(PlannerStatus).is_drained


def test_a_paused_application_stops_after_a_failover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1, "app-leader": 1})
    planner = plan.planner()
    planner.stop_at_current_ends()
    start = planner.first()
    plan.run_files.write(Control(paused=True))
    monkeypatch.setattr("headrace.runtime.planning.planner._POLL_SECONDS", 0.0)
    patch_time(
        monkeypatch,
        "headrace.runtime.planning.planner",
        sleep=lambda _seconds: plan.log.commit_offsets(
            "app-leader", {name("app-leader"): OffsetAndMetadata(1)}
        ),
    )

    with pytest.raises(LeadershipLostError):
        planner.next(start)


class LateCommits:
    """Hides the records of a topic until the planner fences the producers that write it."""

    def __init__(self, plan: Planning, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fenced: list[str] = []
        self._topic = topic
        self._ends = plan.log.end_offsets
        monkeypatch.setattr(plan.log, "end_offsets", self._end_offsets)
        monkeypatch.setattr(plan.log, "fence_producers", self.fenced.extend)

    def _end_offsets(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        ends = self._ends(names)
        hides = {} if self.fenced else {each: 0 for each in ends if each.topic == self._topic}
        return {**ends, **hides}


def test_the_planner_waits_for_records_of_the_application_itself_before_the_query_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying_twice, tmp_path, {"in": 2, "out": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    late = LateCommits(plan, "out", monkeypatch)
    planner.stop_at_current_ends()
    first = planner.next(planner.first())
    append(plan.log, "out", 3)

    second = planner.next(first)

    assert second.offsets == {"in": [3, 0], "out": [3]}
    assert late.fenced == ["app-0", "app-1"]


@pytest.mark.parametrize(
    ("build", "settings", "ends"),
    [
        (copying, {}, True),
        (copying_twice, {"processing_guarantee": "at_least_once"}, True),
        (copying_twice, {}, False),
    ],
    ids=["nothing is read back", "no transactions", "the query continues"],
)
def test_the_planner_does_not_wait_if_no_records_can_be_late_or_if_the_query_continues(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    build: Any,
    settings: dict[str, Any],
    ends: bool,
) -> None:
    plan = planning(build, tmp_path, {"in": 1, "out": 1}, **settings)
    append(plan.log, "in", 3)
    planner = plan.planner()
    late = LateCommits(plan, "out", monkeypatch)
    if ends:
        planner.stop_at_current_ends()

    first = planner.next(planner.first())

    assert planner.next(first) is first
    assert late.fenced == []
