"""The planner's status and progress, leadership, and results of the batches before."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import (
    LeadershipLostError,
)
from headrace.brokers.log import OffsetAndMetadata
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.runtime.batches import BatchBoundary, ranges
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.run_files import Control, PlannerStatus, RunFiles
from tests.module_time import patch_time
from tests.unit.runtime.planning import (
    Planning,
    append,
    by_pattern,
    copying,
    joining,
    joining_behind_a_repartition,
    name,
    planning,
    refresh_at_next_call,
    run,
    small_batches,
)


def test_the_status_of_an_application_that_stops_is_drained_once_no_batch_runs(
    tmp_path: Path,
) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    start = planner.first()

    plan.run_files.write(Control(stopping=True))

    assert planner.next(start) is start
    assert plan.run_files.read(PlannerStatus).is_drained


def test_the_planner_of_a_previous_leader_plans_nothing_and_commits_nothing(
    tmp_path: Path,
) -> None:
    plan = planning(copying, tmp_path, {"in": 1, "app-leader": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    end = planner.next(planner.first())

    plan.log.commit_offsets("app-leader", {name("app-leader"): OffsetAndMetadata(1)})

    with pytest.raises(LeadershipLostError):
        planner.next(end)
    assert plan.log.committed_offsets("app") == {}


def test_a_paused_planner_writes_its_status_and_plans_nothing(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    start = planner.first()

    plan.run_files.write(Control(paused=True))

    assert planner.next(start) is start
    status = plan.run_files.read(PlannerStatus)
    assert (status.offsets, status.ends) == ({"in": [0]}, {"in": [3]})


def test_the_planner_of_a_continuous_query_waits_for_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger="continuous")
    planner = plan.planner()
    start = planner.first()
    monkeypatch.setattr("headrace.runtime.planning.planner._POLL_SECONDS", 60.0)
    patch_time(
        monkeypatch,
        "headrace.runtime.planning.planner",
        sleep=lambda _seconds: append(plan.log, "in", 1),
    )

    assert planner.next(start).offsets == {"in": [1]}


def test_the_end_of_a_batch_is_committed_at_the_next_call(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 2})
    append(plan.log, "in", 3)
    planner = plan.planner()
    start = planner.first()

    end = planner.next(start)
    before = plan.log.committed_offsets("app")
    planner.next(end)

    assert before == {}
    assert plan.log.committed_offsets("app") == {
        name("in"): OffsetAndMetadata(3, OWN_OFFSETS),
        name("in", 1): OffsetAndMetadata(0, OWN_OFFSETS),
    }


def test_samples_of_the_records_limit_the_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headrace.runtime.planning.admission.Admission.__init__.__kwdefaults__",
        {"max_records": 1000, "max_bytes": 80_000},  # a first batch reads an eighth
    )
    plan = planning(copying, tmp_path, {"in": 1})
    plan.log.append([("in", 0, 1, b"k", bytes(1000), None)] * 50)
    planner = plan.planner()

    assert planner.next(planner.first()).offsets == {"in": [9]}


def test_a_topic_that_stale_metadata_omits_once_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(by_pattern, tmp_path, {"log-a": 1, "log-b": 1})
    append(plan.log, "log-a", 1)
    append(plan.log, "log-b", 1)
    planner = plan.planner()
    [start] = run(planner, planner.first())

    with monkeypatch.context() as patched:
        patched.setattr(plan.log, "list_topics", lambda: ["log-a"])
        append(plan.log, "log-a", 1)
        refresh_at_next_call(planner)
        [start] = run(planner, start)
    append(plan.log, "log-b", 1)
    refresh_at_next_call(planner)
    [end] = run(planner, start)

    assert [(each.topic, each.start, each.end) for each in ranges(start, end)] == [("log-b", 1, 2)]


def test_a_partition_that_stale_metadata_omits_once_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 2})
    append(plan.log, "in", 1)
    append(plan.log, "in", 1, partition=1)
    planner = plan.planner()
    [start] = run(planner, planner.first())

    with monkeypatch.context() as patched:
        patched.setattr(plan.log, "partition_count", lambda _topic: 1)
        append(plan.log, "in", 1)
        refresh_at_next_call(planner)
        [start] = run(planner, start)
        planner.next(start)
    append(plan.log, "in", 1, partition=1)
    refresh_at_next_call(planner)
    [end] = run(planner, start)

    assert end.offsets == {"in": [2, 2]}
    assert [(each.partition, each.start) for each in ranges(start, end)] == [(1, 1)]


def test_the_status_has_the_end_of_the_last_batch_and_the_end_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 2)
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    end = planner.next(planner.first())
    planner.next(end)

    status = plan.run_files.read(PlannerStatus)

    assert (status.offsets, status.ends, status.is_drained) == ({"in": [2]}, {"in": [3]}, False)


@pytest.mark.parametrize(
    "report",
    [
        TaskReport("0_0", bytes_read=64 << 20, bytes_written=1),
        TaskReport("0_0", bytes_read=1, bytes_written=64 << 20),  # it makes many records of one
    ],
)
def test_the_bytes_of_a_batch_limit_the_next(tmp_path: Path, report: TaskReport) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 2)
    planner = plan.planner()
    end = planner.next(planner.first())
    plan.end_batch(0, report)
    append(plan.log, "in", 20)

    second = planner.next(end)

    assert second.offsets == {"in": [10]}
    assert second.partitions_with_more == {"in": [0]}


def test_splits_depend_on_nothing_but_their_arguments(tmp_path: Path) -> None:
    plan = planning(joining, tmp_path, {"in": 2, "table": 2})
    append(plan.log, "in", 3)
    planner = plan.planner()
    start = planner.first()
    end = planner.next(start)
    before = plan.planner().splits(start, end)

    append(plan.log, "table", 7)
    plan.set_clock(9_000)
    planner.next(end)
    again = plan.planner()

    assert planner.splits(start, end) == before
    assert again.splits(BatchBoundary.from_dict(start.as_dict()), end) == before
    assert before[0].batch.clock == end.clock


@pytest.mark.parametrize("runs_once", [True, False])
def test_a_batch_is_new_to_the_query_that_has_planned_it(tmp_path: Path, runs_once: bool) -> None:
    plan = planning(joining, tmp_path, {"in": 2, "table": 2})
    append(plan.log, "in", 3)
    planner = plan.planner(stages_run_once=runs_once)
    start = planner.first()
    end = planner.next(start)
    from_spark = (
        BatchBoundary.from_dict(start.as_dict()),
        BatchBoundary.from_dict(end.as_dict()),
    )

    assert planner.splits(*from_spark)[0].batch.is_new is runs_once
    assert not plan.planner().splits(*from_spark)[0].batch.is_new

    append(plan.log, "in", 3)
    planner.next(end)
    assert not planner.splits(*from_spark)[0].batch.is_new


def test_buffered_records_are_not_committed_and_unknown_progress_stays_as_it_was(
    tmp_path: Path,
) -> None:
    plan = planning(joining, tmp_path, {"in": 2, "table": 2})
    append(plan.log, "in", 6)
    append(plan.log, "in", 6, partition=1)
    planner = plan.planner()
    end = planner.next(planner.first())
    before = {name("in", 1): OffsetAndMetadata(3, OWN_OFFSETS)}
    plan.log.commit_offsets("app", before)

    plan.end_batch(0, TaskReport("0_0", waiting_from={"in": 4}), TaskReport("0_0", bytes_read=1))
    planner.next(end)

    assert plan.log.committed_offsets("app") == {
        name("in", 0): OffsetAndMetadata(4, OWN_OFFSETS),
        name("table", 0): OffsetAndMetadata(0, OWN_OFFSETS),
        **before,
    }


def committed(plan: Planning) -> dict[str, int]:
    """Return the offsets that the group of the application has, by topic."""
    offsets = plan.log.committed_offsets("app")
    return {partition.topic: committed.offset for partition, committed in offsets.items()}


def tasks_of(plan: Planning, subtopology: int, waiting_from: dict[str, int]) -> list[TaskReport]:
    count = plan.layout().count_of(subtopology)
    return [TaskReport(f"{subtopology}_{p}", waiting_from=waiting_from) for p in range(count)]


def joining_subtopology(plan: Planning, table: str) -> int:
    subtopology = plan.plan.reader_of(table)
    assert subtopology is not None
    return subtopology.id


def test_after_a_restart_offsets_stay_until_the_tasks_behind_a_repartition_have_reported(
    tmp_path: Path,
) -> None:
    plan = planning(joining_behind_a_repartition, tmp_path, {"in": 1, "table": 1})
    join = joining_subtopology(plan, "table")
    append(plan.log, "in", 2)
    planner = plan.planner()
    end = planner.next(planner.first())
    plan.end_batch(0, *tasks_of(plan, join, {}))
    append(plan.log, "in", 3)
    end = planner.next(end)
    plan.end_batch(1, *tasks_of(plan, join, {"app-first-repartition": 0}))

    same_run = plan.planner()
    same_run.next(end)
    of_same_run = committed(plan)
    plan.run_files = RunFiles(tmp_path)
    new_run = plan.planner()
    called = new_run.next(end)
    of_new_run = committed(plan)
    plan.end_batch(2, *tasks_of(plan, join, {}))
    new_run.next(called)

    assert called is not end, "the tasks are called although there is nothing to read"
    assert of_same_run == of_new_run == {"in": 2, "table": 0}
    assert committed(plan) == {"in": 5, "table": 0}


def test_an_input_that_is_ahead_waits_until_the_other_inputs_are_read(tmp_path: Path) -> None:
    plan = planning(joining, tmp_path, {"in": 1, "table": 1})
    append(plan.log, "in", 2)
    planner = plan.planner()
    end = planner.next(planner.first())
    plan.end_batch(0, TaskReport("0_0", ahead=["in"]))
    append(plan.log, "in", 3)
    append(plan.log, "table", 4)

    second = planner.next(end)
    plan.end_batch(1, TaskReport("0_0"))
    third = planner.next(second)

    assert second.offsets == {"in": [2], "table": [4]}
    assert second.partitions_with_more == {"in": [0]}
    assert third.offsets == {"in": [5], "table": [4]}
