"""Batches at an interval: when they begin, and what the planner does between them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.runtime.run_files import Control, PlannerStatus
from tests.module_time import patch_time
from tests.unit.runtime.planning import (
    FakeTime,
    append,
    copying,
    name,
    planning,
    small_batches,
)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Return the clocks of the interval."""
    fake = FakeTime()
    monkeypatch.setattr("headrace.runtime.planning.admission.time", fake)
    return fake


@pytest.fixture
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make planners return at once if there is no batch to plan."""
    monkeypatch.setattr("headrace.runtime.planning.planner._POLL_SECONDS", 0.0)


@pytest.mark.usefixtures("without_waiting")
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_batch_is_committed_and_reported_before_the_interval_is_over(
    tmp_path: Path, clocks: FakeTime, guarantee: str
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger="60s", processing_guarantee=guarantee)
    append(plan.log, "in", 3)
    planner = plan.planner()
    end = planner.next(planner.first())
    before = plan.log.committed_offsets("app")
    append(plan.log, "in", 2)

    assert planner.next(end) is end

    status = plan.run_files.read(PlannerStatus)
    assert before == {}
    assert plan.log.committed_offsets("app") == {name("in"): OffsetAndMetadata(3, OWN_OFFSETS)}
    assert (status.offsets, status.ends) == ({"in": [3]}, {"in": [5]})
    clocks.advance(60.0)
    assert planner.next(end).offsets == {"in": [5]}


@pytest.mark.usefixtures("without_waiting")
def test_records_that_miss_the_time_of_a_batch_wait_for_the_next_interval(
    tmp_path: Path, clocks: FakeTime
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger="60s")
    planner = plan.planner()
    start = planner.first()
    planner.next(start)

    append(plan.log, "in", 3)
    too_soon = planner.next(start)
    clocks.advance(60.0)

    assert too_soon is start
    assert planner.next(start).offsets == {"in": [3]}


@pytest.mark.usefixtures("without_waiting")
def test_the_interval_does_not_count_as_the_time_of_a_batch(
    tmp_path: Path, clocks: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 100)
    for module in ("planner", "status"):
        monkeypatch.setattr(f"headrace.runtime.planning.{module}.time", clocks)
    plan = planning(copying, tmp_path, {"in": 1}, trigger="60s")
    planner = plan.planner()
    boundary = planner.first()
    sizes = []

    for records in (100, 800, 6_400):
        append(plan.log, "in", records)
        end = planner.next(boundary)
        sizes.append(end.offset("in", 0) - boundary.offset("in", 0))
        clocks.advance(1.0)
        boundary = end
        assert planner.next(boundary) is boundary
        assert plan.run_files.read(PlannerStatus).seconds == 1.0
        clocks.advance(60.0)

    assert sizes == [100, 800, 6_400]


@pytest.mark.usefixtures("without_waiting")
def test_the_next_batch_begins_at_once_if_the_last_one_left_records(
    tmp_path: Path, clocks: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 100)
    plan = planning(copying, tmp_path, {"in": 1}, trigger="60s")
    append(plan.log, "in", 150)
    planner = plan.planner()

    first = planner.next(planner.first())
    second = planner.next(first)
    append(plan.log, "in", 1)
    too_soon = planner.next(second)

    assert (first.offsets, second.offsets) == ({"in": [100]}, {"in": [150]})
    assert too_soon is second


def test_a_planner_that_waits_for_its_interval_stops_when_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger=timedelta(days=10_000))
    append(plan.log, "in", 3)
    planner = plan.planner()
    end = planner.next(planner.first())
    monkeypatch.setattr("headrace.runtime.planning.planner._POLL_SECONDS", 60.0)
    patch_time(
        monkeypatch,
        "headrace.runtime.planning.planner",
        sleep=lambda _seconds: plan.run_files.write(Control(stopping=True)),
    )

    assert planner.next(end) is end

    status = plan.run_files.read(PlannerStatus)
    assert (status.is_drained, status.offsets) == (True, {"in": [3]})
    assert plan.log.committed_offsets("app")[name("in")].offset == 3


def test_the_planner_reads_end_offsets_twice_a_second_at_most_while_no_batch_may_begin(
    tmp_path: Path, clocks: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger="60s")
    planner = plan.planner()
    start = planner.first()
    planner.next(start)
    for module in ("planner", "status"):
        monkeypatch.setattr(f"headrace.runtime.planning.{module}.time", clocks)
    monkeypatch.setattr("headrace.runtime.planning.planner._POLL_SECONDS", 19.0)
    monkeypatch.setattr(planner._status, "_reported_at", clocks.monotonic())
    requests, end_offsets = list[float](), plan.log.end_offsets

    def counted(names: list[TopicPartition]) -> dict[TopicPartition, int]:
        requests.append(clocks.ticks)
        return end_offsets(names)

    monkeypatch.setattr(plan.log, "end_offsets", counted)

    planner.next(start)

    assert 19 <= len(requests) <= 2 * 19
