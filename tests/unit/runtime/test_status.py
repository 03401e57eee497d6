"""The planner's status: when it is due, and which facts it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.runtime.batches import BatchBoundary
from headrace.runtime.planning.admission import Admission
from headrace.runtime.planning.status import StatusReport
from headrace.runtime.run_files import PlannerStatus, RunFiles
from tests.unit.runtime.planning import FakeTime, OffsetLog, name

START = BatchBoundary({"in": [3, 0]}, 1_000)
LATER = BatchBoundary({"in": [4, 0]}, 2_000)


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr("headrace.runtime.planning.status.time", fake)
    return fake


@pytest.fixture
def run_files(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path)


@pytest.fixture
def admission() -> Admission:
    return Admission(OffsetLog({}).as_log)


@pytest.fixture
def status(fake_time: FakeTime, run_files: RunFiles, admission: Admission) -> StatusReport:
    return StatusReport(run_files, admission)


def test_the_first_report_is_due_at_once(status: StatusReport) -> None:
    assert status.is_due(START)


def test_the_next_report_is_due_after_half_a_second(
    status: StatusReport, fake_time: FakeTime
) -> None:
    status.write(START, {})

    fake_time.advance(0.5)
    early = status.is_due(START)
    fake_time.advance(0.1)

    assert not early
    assert status.is_due(START)


def test_a_report_is_due_as_soon_as_a_batch_has_ended(status: StatusReport) -> None:
    status.write(START, {})

    assert not status.is_due(BatchBoundary({"in": [3, 0]}, 1_000))
    assert status.is_due(LATER)


def test_the_status_has_the_offsets_of_the_last_batch_and_the_ends_of_all_partitions(
    status: StatusReport, run_files: RunFiles, admission: Admission
) -> None:
    status.seconds = 1.5
    admission.limit = 77
    ends = {name("table"): 4, name("in", 10): 2, name("in", 1): 7, name("in", 0): 5}

    status.write(START, ends)

    assert run_files.read(PlannerStatus) == PlannerStatus(
        is_drained=False,
        offsets={"in": [3, 0]},
        ends={"in": [5, 7, 2], "table": [4]},
        limit=77,
        seconds=1.5,
    )


def test_the_last_status_of_a_planner_that_stops_is_drained(
    status: StatusReport, run_files: RunFiles
) -> None:
    status.write(START, {name("in"): 5}, is_drained=True)

    written = run_files.read(PlannerStatus)
    assert (written.is_drained, written.offsets, written.ends) == (
        True,
        {"in": [3, 0]},
        {"in": [5]},
    )


def test_each_status_replaces_the_one_before(status: StatusReport, run_files: RunFiles) -> None:
    status.write(START, {name("in"): 5}, is_drained=True)
    status.write(LATER, {name("in"): 6})

    written = run_files.read(PlannerStatus)
    assert (written.is_drained, written.offsets, written.ends) == (
        False,
        {"in": [4, 0]},
        {"in": [6]},
    )
