"""Run files, through which the processes of a driver share control, status and results."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from headrace.engine.record_failures import FirstFailure
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.run_files import BatchResult, Control, PlannerStatus, RunFiles, Totals


def test_a_note_replaces_the_last_one_of_its_kind(tmp_path: Path) -> None:
    run_files = RunFiles(tmp_path)

    run_files.write(Control(paused=True))
    run_files.write(PlannerStatus(limit=7))
    run_files.write(Control(clock=5))

    assert run_files.read(Control) == Control(clock=5)
    assert run_files.read(PlannerStatus).limit == 7


def test_another_process_reads_what_was_left(tmp_path: Path) -> None:
    report = TaskReport("0_1", processed=3, dropped={"node": {"late": 1}}, next_due=9)

    RunFiles(tmp_path).write(BatchResult(4, [report], Totals(batches=5)))

    assert RunFiles(str(tmp_path)).read(BatchResult) == BatchResult(4, [report], Totals(batches=5))


def test_without_a_note_there_is_an_empty_one(tmp_path: Path) -> None:
    assert RunFiles(tmp_path).read(BatchResult) == BatchResult()
    assert not RunFiles(tmp_path).read(Control).stopping


def test_a_run_file_has_the_time_of_its_last_write(tmp_path: Path) -> None:
    run_files = RunFiles(tmp_path)
    before = run_files.written_at(Control)

    run_files.write(Control())
    os.utime(tmp_path / "Control.json", (7, 7))

    assert (before, run_files.written_at(Control), run_files.written_at(BatchResult)) == (
        0.0,
        7.0,
        0.0,
    )


def test_no_half_written_note_is_left_behind(tmp_path: Path) -> None:
    RunFiles(tmp_path).write(Control())

    assert [path.name for path in tmp_path.iterdir()] == ["Control.json"]


def test_two_threads_may_leave_a_note_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_files, write_bytes = RunFiles(tmp_path), Path.write_bytes
    others = [threading.Thread(target=run_files.write, args=[Control(clock=2)])]

    def write_slowly(path: Path, data: bytes) -> int:
        written = write_bytes(path, data)
        while others:
            other = others.pop()
            other.start()
            other.join()
        return written

    monkeypatch.setattr(Path, "write_bytes", write_slowly)
    run_files.write(Control(clock=1))

    assert run_files.read(Control) == Control(clock=1)
    assert [path.name for path in tmp_path.iterdir()] == ["Control.json"]


def test_kept_notes_can_be_read_when_their_files_are_gone(tmp_path: Path) -> None:
    run_files = RunFiles(tmp_path)
    run_files.write(PlannerStatus(limit=7))

    run_files.keep()
    (tmp_path / "PlannerStatus.json").unlink()

    assert run_files.read(PlannerStatus).limit == 7
    assert run_files.read(BatchResult) == BatchResult()


def test_totals_add_what_tasks_did_and_what_went_to_topics() -> None:
    totals = Totals()

    totals.add([TaskReport("0_0", processed=2, dropped={"join": {"null-key": 1}})])
    totals.add(
        [
            TaskReport("0_0", processed=3, dropped={"join": {"null-key": 2, "late": 1}}),
            TaskReport("0_1", processed=1),
        ]
    )
    totals.add_written({"out": 4}, {})
    totals.add_written({"out": 1, "letters": 1}, {"out": 1})

    assert totals.processed == {"0_0": 5, "0_1": 1}
    assert totals.dropped == {"0_0": {"join": {"null-key": 3, "late": 1}}}
    assert totals.written == {"out": 5, "letters": 1}
    assert totals.refused == {"out": 1}


def test_totals_of_two_runs_do_not_share_anything() -> None:
    one = Totals()

    one.add_written({"out": 1}, {})

    assert Totals().written == {}


def test_totals_keep_the_first_failure_of_each_node_and_reason(tmp_path: Path) -> None:
    first, later = (FirstFailure("node", "processing", text, "app.py:3") for text in ("1", "2"))
    other = FirstFailure("node", "deserialization", "3", None)
    totals = Totals()

    totals.add([TaskReport("0_0", failures=[first]), TaskReport("0_1", failures=[later, other])])
    RunFiles(tmp_path).write(BatchResult(0, [], totals))

    assert RunFiles(tmp_path).read(BatchResult).totals.failures == [first, other]
