"""Stopping a run: the batch that runs may finish, fail, or be cut short. Without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import UnknownTopicError
from headrace.runtime.run_files import Control, PlannerStatus
from headrace.spark.worker_errors import WorkerFailure
from tests.module_time import patch_time
from tests.unit.spark.fake_query import FakeQuery, faked_queries, started


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[FakeQuery]:
    """The queries that were started."""
    return faked_queries(monkeypatch)


def test_stopping_waits_until_no_batch_runs(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(tmp_path)
    asked: list[Control] = []

    def batch_ends(_seconds: float) -> None:
        asked.append(run.run_files.read(Control))
        run.run_files.write(PlannerStatus(is_drained=True))

    patch_time(monkeypatch, "headrace.spark.runner", sleep=batch_ends)

    assert run.stop(60)
    assert asked == [Control(stopping=True)]
    assert queries[0].stops == 1
    run.release()


@pytest.mark.parametrize(
    "note", [PlannerStatus(), PlannerStatus(offsets={"in": [0, 0, 0]}, limit=1)]
)
def test_stopping_waits_until_the_planner_has_committed_what_the_last_batch_did(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch, note: PlannerStatus
) -> None:
    run = started(tmp_path)
    run.run_files.write(note)
    waits: list[float] = []

    def goes_on(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            run.run_files.write(PlannerStatus(is_drained=True))

    patch_time(monkeypatch, "headrace.spark.runner", sleep=goes_on)

    assert run.stop(60)
    assert len(waits) == 3
    run.release()


def test_stop_returns_false_if_the_batch_was_interrupted(
    tmp_path: Path, queries: list[FakeQuery]
) -> None:
    run = started(tmp_path)

    assert not run.stop(0)
    assert queries[0].stops == 1
    run.release()


def test_stopping_what_has_ended_is_in_time(tmp_path: Path, queries: list[FakeQuery]) -> None:
    run = started(tmp_path)
    queries[0].isActive = False

    assert run.stop(0)
    run.release()


def test_a_failed_query_has_not_finished(tmp_path: Path, queries: list[FakeQuery]) -> None:
    run = started(tmp_path)
    queries[0].fail(Exception(str(WorkerFailure(UnknownTopicError("in")))))

    assert not run.stop(60)
    assert isinstance(run.error(), UnknownTopicError)
    run.release()


def test_a_batch_that_fails_while_it_is_waited_for_has_not_finished(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(tmp_path)

    def batch_fails(_seconds: float) -> None:
        queries[0].fail(Exception(str(WorkerFailure(UnknownTopicError("in")))))

    patch_time(monkeypatch, "headrace.spark.runner", sleep=batch_fails)

    assert not run.stop(60)
    assert isinstance(run.error(), UnknownTopicError)
    run.release()


def test_the_error_of_an_interrupted_query_does_not_count(
    tmp_path: Path, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(tmp_path)
    query = queries[0]
    monkeypatch.setattr(query, "stop", lambda: query.fail(Exception("a worker was interrupted")))

    assert not run.stop(0)
    assert not run.stop(0)
    assert run.error() is None
    run.release()
