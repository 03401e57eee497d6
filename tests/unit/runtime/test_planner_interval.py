"""Batches at an interval: when they begin, and what is told between them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.runtime.planning.interval import Interval
from headrace.runtime.run_files import Control, PlannerStatus
from tests.unit.runtime.planning import append, copying, name, planning, small_batches

MINUTE = timedelta(minutes=1)


class Clocks:
    """The clocks that an interval looks at; a test moves them."""

    def __init__(self) -> None:
        self.now = 1_000_060.0
        """The time of day: a full minute and 40 seconds."""
        self.ticks = 50.0

    def monotonic(self) -> float:
        return self.ticks

    def time(self) -> float:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        self.ticks += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr("headrace.runtime.planning.interval.time", made)
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let planners look once each time they are asked."""
    monkeypatch.setattr("headrace.runtime.planning.planner._PATIENCE_SECONDS", 0.0)


@pytest.mark.parametrize("trigger", ["continuous", "available_now", timedelta(0)])
def test_without_an_interval_a_batch_may_always_begin(trigger: str | timedelta) -> None:
    interval = Interval(trigger)

    assert [interval.is_over(), interval.is_over()] == [True, True]
    assert interval.left() == 0


def test_batches_begin_now_and_then_at_the_multiples_of_the_interval(clocks: Clocks) -> None:
    interval = Interval(MINUTE)

    first = interval.is_over(), interval.is_over(), interval.left()
    clocks.go_on(19.5)
    early = interval.is_over()
    clocks.go_on(1.5)
    second = interval.is_over(), interval.is_over(), interval.left()

    assert first == (True, False, 20.0)
    assert not early
    assert second == (True, False, 59.0)


def test_after_a_batch_that_took_longer_than_the_interval_the_next_begins_at_once(
    clocks: Clocks,
) -> None:
    interval = Interval(MINUTE)
    interval.is_over()

    clocks.go_on(150.0)

    assert interval.is_over()
    assert interval.left() == 50.0


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_changes_no_wait_that_has_begun(clocks: Clocks, step: float) -> None:
    interval = Interval(MINUTE)
    interval.is_over()

    clocks.now += step

    assert (interval.is_over(), interval.left()) == (False, 20.0)
    clocks.go_on(20.0)
    assert (interval.is_over(), interval.left()) == (True, 60.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_what_a_batch_did_is_committed_and_told_before_the_interval_is_over(
    tmp_path: Path, clocks: Clocks, guarantee: str
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger="60s", processing_guarantee=guarantee)
    append(plan.log, "in", 3)
    planner = plan.planner()
    end = planner.next(planner.first())
    before = plan.log.committed_offsets("app")
    append(plan.log, "in", 2)

    assert planner.next(end) is end

    note = plan.run_files.read(PlannerStatus)
    assert before == {}
    assert plan.log.committed_offsets("app") == {name("in"): OffsetAndMetadata(3, OWN_OFFSETS)}
    assert (note.offsets, note.ends) == ({"in": [3]}, {"in": [5]})
    clocks.go_on(60.0)
    assert planner.next(end).offsets == {"in": [5]}


@pytest.mark.usefixtures("impatient")
def test_a_batch_without_records_at_its_time_waits_for_the_next(
    tmp_path: Path, clocks: Clocks
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger="60s")
    planner = plan.planner()
    start = planner.first()
    planner.next(start)

    append(plan.log, "in", 3)
    too_soon = planner.next(start)
    clocks.go_on(60.0)

    assert too_soon is start
    assert planner.next(start).offsets == {"in": [3]}


@pytest.mark.usefixtures("impatient")
def test_the_interval_is_not_taken_for_the_time_of_a_batch(
    tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 100)
    planners = SimpleNamespace(monotonic=clocks.monotonic, time_ns=lambda: 0, sleep=clocks.go_on)
    monkeypatch.setattr("headrace.runtime.planning.planner.time", planners)
    plan = planning(copying, tmp_path, {"in": 1}, trigger="60s")
    planner = plan.planner()
    position = planner.first()
    taken = []

    for records in (100, 800, 6_400):
        append(plan.log, "in", records)
        end = planner.next(position)
        taken.append(end.offset("in", 0) - position.offset("in", 0))
        clocks.go_on(1.0)
        position = end
        assert planner.next(position) is position
        assert plan.run_files.read(PlannerStatus).seconds == 1.0
        clocks.go_on(60.0)

    assert taken == [100, 800, 6_400]


@pytest.mark.usefixtures("impatient")
def test_a_batch_that_leaves_records_behind_is_followed_at_once(
    tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
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


def test_a_planner_that_waits_for_its_interval_hears_that_it_is_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger=timedelta(days=10_000))
    append(plan.log, "in", 3)
    planner = plan.planner()
    end = planner.next(planner.first())
    monkeypatch.setattr("headrace.runtime.planning.planner._PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(
        "headrace.runtime.planning.planner.time.sleep",
        lambda _seconds: plan.run_files.write(Control(stopping=True)),
    )

    assert planner.next(end) is end

    note = plan.run_files.read(PlannerStatus)
    assert (note.is_drained, note.offsets) == (True, {"in": [3]})
    assert plan.log.committed_offsets("app")[name("in")].offset == 3


def test_the_broker_is_not_asked_all_the_time_while_no_batch_may_begin(
    tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger="60s")
    planner = plan.planner()
    start = planner.first()
    planner.next(start)
    planners = SimpleNamespace(monotonic=clocks.monotonic, time_ns=lambda: 0, sleep=clocks.go_on)
    monkeypatch.setattr("headrace.runtime.planning.planner.time", planners)
    monkeypatch.setattr("headrace.runtime.planning.planner._PATIENCE_SECONDS", 19.0)
    monkeypatch.setattr(planner, "_noted", clocks.monotonic())
    looks, end_offsets = list[float](), plan.log.end_offsets

    def counted(names: list[TopicPartition]) -> dict[TopicPartition, int]:
        looks.append(clocks.ticks)
        return end_offsets(names)

    monkeypatch.setattr(plan.log, "end_offsets", counted)

    planner.next(start)

    assert 19 <= len(looks) <= 2 * 19
