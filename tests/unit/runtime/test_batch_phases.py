from __future__ import annotations

import os
from pathlib import Path

from headrace.runtime.planning.batch_phases import BatchPhases
from headrace.runtime.run_files import BatchResult, RunFiles
from tests.unit.runtime.planning import FakeTime


def phases_of(folder: Path, fake: FakeTime) -> BatchPhases:
    return BatchPhases(RunFiles(folder), fake.monotonic, fake.monotonic)


def end_run(folder: Path, at: float) -> None:
    RunFiles(folder).write(BatchResult(0))
    os.utime(folder / "BatchResult.json", (at, at))


def seconds(phases: BatchPhases) -> dict[str, tuple[int, float]]:
    return {name: (each.total, round(each.sum, 3)) for name, each in phases.histograms.items()}


def test_the_phases_of_a_batch_follow_each_other(tmp_path: Path) -> None:
    fake = FakeTime()
    phases = phases_of(tmp_path, fake)
    fake.advance(9.0)

    phases.begin_plan()
    fake.advance(0.5)
    phases.planned()
    fake.advance(2.0)
    phases.runs()
    fake.advance(4.0)
    phases.ran(4.0)
    end_run(tmp_path, fake.monotonic())
    fake.advance(0.25)
    phases.ended()

    assert seconds(phases) == {
        "plan": (1, 0.5),
        "prepare": (1, 2.0),
        "run": (1, 4.0),
        "finish": (1, 0.25),
    }


def test_waiting_for_records_is_no_phase(tmp_path: Path) -> None:
    fake = FakeTime()
    phases = phases_of(tmp_path, fake)

    for _ in range(3):
        phases.ended()
        phases.begin_plan()
        fake.advance(1.0)
    phases.planned()

    assert seconds(phases) == {"plan": (1, 1.0)}


def test_splits_that_are_asked_for_again_prepare_no_second_batch(tmp_path: Path) -> None:
    fake = FakeTime()
    phases = phases_of(tmp_path, fake)
    phases.begin_plan()
    phases.planned()
    phases.runs()
    fake.advance(1.0)

    phases.runs()

    assert phases.histograms["prepare"].total == 1


def test_a_batch_without_a_result_of_its_own_has_no_finish(tmp_path: Path) -> None:
    fake = FakeTime()
    phases = phases_of(tmp_path, fake)
    end_run(tmp_path, fake.monotonic())
    fake.advance(10.0)
    phases.begin_plan()
    phases.planned()
    phases.runs()
    fake.advance(1.0)

    phases.ended()

    assert "finish" not in phases.histograms
