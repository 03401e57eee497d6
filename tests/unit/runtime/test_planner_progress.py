"""What the planner tells others, and what it notices of its topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import (
    CheckpointError,
    LeadershipLostError,
    StreamsBuilder,
)
from headrace.brokers.log import OffsetAndMetadata
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.runtime.batches import BatchBoundary, ranges
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.run_files import Control, PlannerStatus, RunFiles
from tests.unit.runtime.planning import (
    Planning,
    append,
    by_pattern,
    copying,
    counting,
    create,
    joining,
    joining_behind_a_repartition,
    joining_behind_two_repartitions,
    look_again,
    name,
    planning,
    run,
    scheduling,
    small_batches,
)


def test_an_application_that_stops_says_when_no_batch_runs_any_more(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    start = planner.first()

    plan.run_files.write(Control(stopping=True))

    assert planner.next(start) is start
    assert plan.run_files.read(PlannerStatus).is_drained


def test_a_planner_whose_leader_was_taken_over_plans_nothing_and_commits_nothing(
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


def test_a_paused_planner_tells_how_far_it_is_and_plans_nothing(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    start = planner.first()

    plan.run_files.write(Control(paused=True))

    assert planner.next(start) is start
    note = plan.run_files.read(PlannerStatus)
    assert (note.offsets, note.ends) == ({"in": [0]}, {"in": [3]})


def test_a_continuous_query_waits_a_little_for_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, trigger="continuous")
    planner = plan.planner()
    start = planner.first()
    monkeypatch.setattr("headrace.runtime.planning.planner._PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(
        "headrace.runtime.planning.planner.time.sleep", lambda _seconds: append(plan.log, "in", 1)
    )

    assert planner.next(start).offsets == {"in": [1]}


def test_progress_is_committed_to_the_group_of_the_application(tmp_path: Path) -> None:
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


def test_the_first_batch_is_bounded_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headrace.runtime.planning.admission.Admission.__init__.__kwdefaults__",
        {"max_records": 1000, "max_bytes": 10_000},
    )
    plan = planning(copying, tmp_path, {"in": 1})
    plan.log.append([("in", 0, 1, b"k", bytes(1000), None)] * 50)
    planner = plan.planner()

    assert planner.next(planner.first()).offsets == {"in": [9]}


def test_a_topic_that_was_made_again_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.planning.planner._SHORT_SECONDS", -1.0)
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    end = planner.next(planner.first())
    plan.log.delete_topic("in")
    create(plan.log, **{"in": 1})
    append(plan.log, "in", 1)

    with pytest.raises(CheckpointError, match="ends at 1, but was read up to 3: it was deleted"):
        planner.next(end)


def test_a_topic_may_seem_short_for_a_moment(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    end = planner.next(planner.first())
    plan.log.delete_topic("in")
    create(plan.log, **{"in": 1})

    assert planner.next(end) is end
    append(plan.log, "in", 4)
    assert planner.next(end).offsets == {"in": [4]}


def test_a_topic_that_a_broker_leaves_out_once_is_not_read_again(
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
        look_again(planner)
        [start] = run(planner, start)
    append(plan.log, "log-b", 1)
    look_again(planner)
    [end] = run(planner, start)

    assert [(each.topic, each.start, each.end) for each in ranges(start, end)] == [("log-b", 1, 2)]


def test_a_partition_that_a_broker_leaves_out_once_is_not_read_again(
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
        look_again(planner)
        [start] = run(planner, start)
        planner.next(start)
    append(plan.log, "in", 1, partition=1)
    look_again(planner)
    [end] = run(planner, start)

    assert end.offsets == {"in": [2, 2]}
    assert [(each.partition, each.start) for each in ranges(start, end)] == [(1, 1)]


def test_progress_is_committed_again_before_kafka_forgets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    [end] = run(planner, planner.first())
    plan.log.delete_group("app")
    planner.next(end)
    kept = plan.log.committed_offsets("app")

    monkeypatch.setattr("headrace.runtime.planning.planner._COMMIT_SECONDS", 0.0)
    planner.next(end)

    assert kept == {}
    assert plan.log.committed_offsets("app")[name("in")].offset == 3


def test_the_seal_of_the_markers_is_renewed_before_kafka_forgets_it_also_without_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    planner = plan.planner()
    start = planner.first()
    planner.next(start)
    plan.log.delete_group("app-markers")
    planner.next(start)
    kept = plan.log.committed_offsets("app-markers")

    monkeypatch.setattr("headrace.runtime.planning.planner._COMMIT_SECONDS", 0.0)
    planner.next(start)

    assert kept == {}
    assert plan.log.committed_offsets("app-markers").keys() == {name("app-leader")}


def test_what_was_read_of_a_loop_is_deleted_one_batch_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.planning.planner._PURGE_SECONDS", -1.0)
    builder = StreamsBuilder()
    customers = builder.table("customers", key=str, value=str)
    orders = builder.table("orders", key=str, value=str)
    orders.join(customers, lambda a, b: a + b, foreign_key=lambda value: value, value=str)
    plan = Planning(builder.build(), tmp_path)
    create(plan.log, orders=1, customers=1)
    planner = plan.planner()
    start = planner.first()
    loops = sorted(plan.plan.loops)
    for loop in loops:
        append(plan.log, loop, 2)

    names = [name(loop) for loop in loops]
    first = planner.next(start)
    planner.next(first)
    after_one = set(plan.log.beginning_offsets(names).values())
    append(plan.log, "orders", 1)
    planner.next(planner.next(first))

    assert loops
    assert after_one == {0}, "the last batch may be done again"
    assert set(plan.log.beginning_offsets(names).values()) == {2}


def test_the_planner_tells_how_far_it_is_and_how_far_topics_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 2)
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    end = planner.next(planner.first())
    planner.next(end)

    note = plan.run_files.read(PlannerStatus)

    assert (note.offsets, note.ends, note.is_drained) == ({"in": [2]}, {"in": [3]}, False)


def test_the_bytes_of_a_batch_bound_the_next(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 2)
    planner = plan.planner()
    end = planner.next(planner.first())
    plan.end_batch(0, TaskReport("0_0", bytes_read=64 << 20))
    append(plan.log, "in", 20)

    second = planner.next(end)

    assert second.offsets == {"in": [10]}
    assert second.partitions_with_more == {"in": [0]}


def test_a_small_batch_is_read_by_one_spark_task(tmp_path: Path) -> None:
    plan = planning(counting, tmp_path, {"in": 4})
    planner = plan.planner()
    start, end = BatchBoundary({"in": [0] * 4}, 1), BatchBoundary({"in": [5_000] * 4}, 2)

    splits = planner.splits(start, end)

    assert [len(each.ranges) for each in splits] == [4]


def test_a_large_batch_is_spread_evenly_and_no_partition_is_split(tmp_path: Path) -> None:
    plan = planning(scheduling, tmp_path, {"in": 4})
    planner = plan.planner()
    start = BatchBoundary({"in": [0] * 4}, 1)
    end = BatchBoundary({"in": [40_000, 10_000, 20_000, 10_000]}, 2)

    splits = planner.splits(start, end)

    sizes = [sum(each.end - each.start for each in split.ranges) for split in splits]
    assert sizes == [40_000, 40_000]
    assert {each for split in splits for each in split.ranges} == {*ranges(start, end)}
    assert [len(split.task_calls) for split in splits] == [4, 0]


def test_a_large_batch_of_one_partition_is_one_reading(tmp_path: Path) -> None:
    plan = planning(counting, tmp_path, {"in": 1})

    splits = plan.planner().splits(
        BatchBoundary({"in": [0]}, 1), BatchBoundary({"in": [90_000]}, 2)
    )

    assert len(splits) == 1


def test_readings_depend_on_nothing_but_their_arguments(tmp_path: Path) -> None:
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
    told = BatchBoundary.from_dict(start.as_dict()), BatchBoundary.from_dict(end.as_dict())

    assert planner.splits(*told)[0].batch.is_new is runs_once
    assert not plan.planner().splits(*told)[0].batch.is_new

    append(plan.log, "in", 3)
    planner.next(end)
    assert not planner.splits(*told)[0].batch.is_new


def test_what_waits_in_a_task_is_not_committed_and_that_of_others_stays_as_it_was(
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
    """Return what the group of the application has committed of the first partitions."""
    found = plan.log.committed_offsets("app")
    return {each.topic: kept.offset for each, kept in found.items() if each.partition == 0}


def tasks_of(plan: Planning, subtopology: int, waiting_from: dict[str, int]) -> list[TaskReport]:
    count = plan.layout().count_of(subtopology)
    return [TaskReport(f"{subtopology}_{p}", waiting_from=waiting_from) for p in range(count)]


def joined_part(plan: Planning, table: str) -> int:
    subtopology = plan.plan.reader_of(table)
    assert subtopology is not None
    return subtopology.id


def test_what_waits_behind_a_repartition_is_not_committed_until_it_is_processed(
    tmp_path: Path,
) -> None:
    plan = planning(joining_behind_a_repartition, tmp_path, {"in": 1, "table": 1})
    join = joined_part(plan, "table")
    planner = plan.planner()
    end = planner.first()
    told = []
    for batch, waiting in enumerate(
        [
            {},
            {"app-first-repartition": 0},
            {"app-first-repartition": 0, "table": 5},
            {},
        ]
    ):
        append(plan.log, "in", 1)
        append(plan.log, "table", 2)
        end = planner.next(end)
        plan.end_batch(batch, *tasks_of(plan, join, waiting))
        planner.next(end)
        told.append(committed(plan))

    assert told == [
        {"in": 1, "table": 2},
        {"in": 1, "table": 4},
        {"in": 1, "table": 5},
        {"in": 4, "table": 8},
    ]


def test_a_task_behind_a_repartition_that_has_not_told_yet_holds_progress_up(
    tmp_path: Path,
) -> None:
    plan = planning(joining_behind_a_repartition, tmp_path, {"in": 2, "table": 2})
    told, untold = tasks_of(plan, joined_part(plan, "table"), {})
    append(plan.log, "in", 2)
    planner = plan.planner()
    end = planner.next(planner.first())

    plan.end_batch(0, told)
    planner.next(end)
    before = committed(plan)
    plan.run_files = RunFiles(tmp_path)
    again = plan.planner()
    end = again.next(end)
    plan.end_batch(1, told, untold)
    again.next(end)

    assert before == {"table": 0}
    assert committed(plan) == {"in": 2, "table": 0}


def test_after_a_restart_offsets_stay_until_the_tasks_behind_a_repartition_have_told(
    tmp_path: Path,
) -> None:
    plan = planning(joining_behind_a_repartition, tmp_path, {"in": 1, "table": 1})
    join = joined_part(plan, "table")
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
    woken = new_run.next(end)
    of_new_run = committed(plan)
    plan.end_batch(2, *tasks_of(plan, join, {}))
    new_run.next(woken)

    assert woken is not end, "the tasks are called although there is nothing to read"
    assert of_same_run == of_new_run == {"in": 2, "table": 0}
    assert committed(plan) == {"in": 5, "table": 0}


def test_what_waits_behind_a_repartition_holds_up_all_that_comes_through_it(
    tmp_path: Path,
) -> None:
    topics = {"in": 1, "first-table": 1, "second-table": 1}
    plan = planning(joining_behind_two_repartitions, tmp_path, topics)
    first, second = (joined_part(plan, f"{each}-table") for each in ("first", "second"))
    planner = plan.planner()
    end = planner.first()
    told = []
    for batch, waiting in enumerate(
        [({}, {}), ({}, {"app-second-repartition": 0}), ({"app-first-repartition": 0}, {})]
    ):
        for topic in topics:
            append(plan.log, topic, 1)
        end = planner.next(end)
        plan.end_batch(
            batch, *tasks_of(plan, first, waiting[0]), *tasks_of(plan, second, waiting[1])
        )
        planner.next(end)
        told.append(committed(plan))

    assert told == [
        {"in": 1, "first-table": 1, "second-table": 1},
        {"in": 1, "first-table": 1, "second-table": 2},
        {"in": 1, "first-table": 3, "second-table": 3},
    ]


def test_what_was_committed_of_a_partition_that_a_broker_leaves_out_once_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(joining_behind_a_repartition, tmp_path, {"in": 2, "table": 2})
    join = joined_part(plan, "table")
    planner = plan.planner()
    end = planner.first()

    def run_batch(batch: int, waiting: dict[str, int]) -> None:
        nonlocal end
        append(plan.log, "in", 1)
        end = planner.next(end)
        plan.end_batch(batch, *tasks_of(plan, join, waiting))
        planner.next(end)

    plan.log.commit_offsets("app", {name("in", 1): OffsetAndMetadata(0, OWN_OFFSETS)})
    append(plan.log, "in", 1, partition=1)
    run_batch(0, {"app-first-repartition": 0})
    run_batch(1, {})
    with monkeypatch.context() as patched:
        patched.setattr(plan.log, "partition_count", lambda _topic: 1)
        look_again(planner)
        run_batch(2, {})
    look_again(planner)
    run_batch(3, {"app-first-repartition": 0})

    assert plan.log.committed_offsets("app")[name("in", 1)].offset == 1
