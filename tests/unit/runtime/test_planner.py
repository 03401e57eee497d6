"""The planner: what the next batch reads, task calls, and topics that change while it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace import (
    BrokerUnavailableError,
    StreamsBuilder,
    TopologyError,
)
from headrace.runtime.batches import BatchBoundary, Range, ranges
from headrace.runtime.checkpoint.layout import read_layout
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.planning.admission import Admission
from headrace.runtime.planning.planner import Planner
from headrace.runtime.run_files import Control
from tests.unit.runtime.planning import (
    append,
    by_pattern,
    by_two_patterns,
    copying,
    counting,
    create,
    joining,
    name,
    planning,
    refresh_at_next_call,
    run,
    scheduling,
    small_batches,
    with_global_table,
)


def test_a_batch_reads_all_records_there_are(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 2})
    append(plan.log, "in", 3)
    append(plan.log, "in", 2, partition=1)
    planner = plan.planner()
    first = planner.first()

    end = planner.next(first)

    assert first.offsets == {"in": [0, 0]}
    assert end.offsets == {"in": [3, 2]}
    assert end.partitions_with_more == {}
    assert planner.next(end) is end


def test_a_batch_reads_no_more_records_than_admission_control_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 4)
    monkeypatch.setattr("headrace.runtime.planning.admission.MAX_RECORDS", 4)
    plan = planning(copying, tmp_path, {"in": 2})
    append(plan.log, "in", 9)
    append(plan.log, "in", 1, partition=1)
    planner = plan.planner()
    planner._admission = Admission(plan.log, max_records=4)

    ends = run(planner, planner.first())

    assert [end.offsets["in"] for end in ends] == [[3, 1], [7, 1], [9, 1]]
    assert [end.partitions_with_more for end in ends] == [{"in": [0]}, {"in": [0]}, {}]


def test_a_batch_boundary_names_the_partitions_with_more_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 4)
    plan = planning(joining, tmp_path, {"in": 2, "table": 2})
    append(plan.log, "in", 5)
    append(plan.log, "table", 5)
    append(plan.log, "table", 5, partition=1)
    planner = plan.planner()

    end = planner.next(planner.first())
    [split] = planner.splits(planner.first(), end)

    assert end.partitions_with_more == {"in": [0], "table": [0, 1]}
    assert {
        task_call.partition: set(task_call.partitions_with_more) for task_call in split.task_calls
    } == {
        0: {("in", 0), ("table", 0)},
        1: {("table", 1)},
    }


def test_global_tables_are_loaded_before_other_topics_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 2)
    plan = planning(with_global_table, tmp_path, {"in": 1, "rates": 1})
    append(plan.log, "in", 1)
    append(plan.log, "rates", 3)
    planner = plan.planner()
    planner._admission = Admission(plan.log, max_records=2)
    first = planner.first()
    append(plan.log, "rates", 1)  # after the start, so other topics do not wait for it

    ends = run(planner, first)

    assert first.global_load_ends == {"rates": [3]}
    assert [(end.offsets["rates"], end.offsets["in"]) for end in ends] == [
        ([2], [0]),
        ([3], [0]),
        ([4], [1]),
    ]


def test_time_alone_starts_no_batch(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    planner = plan.planner()
    start = planner.first()

    plan.set_clock(10**12)

    assert planner.next(start) is start


def test_tasks_that_may_schedule_are_called_at_the_start_and_when_a_punctuation_is_due(
    tmp_path: Path,
) -> None:
    plan = planning(scheduling, tmp_path, {"in": 2})
    planner = plan.planner()
    start = planner.first()

    first = planner.next(start)
    [split] = planner.splits(start, first)
    plan.end_batch(0, TaskReport("0_0", next_due=5_000), TaskReport("0_1"))
    plan.set_clock(4_999)
    too_early = planner.next(first)
    plan.set_clock(5_000)
    due = planner.next(first)

    assert (first.clock, first.offsets) == (1_000, {"in": [0, 0]})
    assert [(task_call.subtopology, task_call.partition) for task_call in split.task_calls] == [
        (0, 0),
        (0, 1),
    ]
    assert split.ranges == ()
    assert too_early is first
    assert due.clock == 5_000


def test_no_task_is_called_if_none_has_reported_a_due_time(tmp_path: Path) -> None:
    plan = planning(scheduling, tmp_path, {"in": 1})
    planner = plan.planner()
    first = planner.next(planner.first())
    plan.end_batch(0, TaskReport("0_0"))
    plan.set_clock(10**12)

    assert planner.next(first) is first


def test_new_partitions_of_a_stateless_source_get_tasks_before_a_batch_reads_them(
    tmp_path: Path,
) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 1)
    planner = plan.planner()
    first = planner.next(planner.first())

    plan.log.grow_topic("in", partitions=3)
    append(plan.log, "in", 2, partition=2)
    unseen = planner.next(first)
    refresh_at_next_call(planner)
    seen = planner.next(first)

    layout = read_layout("app", plan.checkpoint)
    assert layout is not None
    assert unseen is first
    assert seen.offsets == {"in": [1, 0, 2]}
    assert [layout.placement(0, partition).task_number for partition in range(3)] == [0, 1, 2]
    assert plan.log.partition_count("app-markers") == 3
    assert planner.splits(first, seen)[0].ranges == tuple(ranges(first, seen))


def test_new_tasks_are_in_the_layout_only_after_their_marker_partitions_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 1)
    planner = plan.planner()
    first = planner.next(planner.first())
    plan.log.grow_topic("in", partitions=3)
    refresh_at_next_call(planner)

    def fail(*_: object) -> None:
        raise BrokerUnavailableError("No answer.")

    with monkeypatch.context() as broken:
        broken.setattr("headrace.runtime.planning.planner.ensure_marker_topic", fail)
        with pytest.raises(BrokerUnavailableError):
            planner.next(first)
    layout = read_layout("app", plan.checkpoint)
    assert layout is not None
    # The restart of a query in the same session makes such a planner.
    again = Planner(
        plan.plan,
        plan.config,
        plan.log,
        layout,
        plan.spark_checkpoint,
        plan.run_files,
        leader_epoch=0,
        stages_run_once=True,
    )
    again.next(first)

    assert plan.log.partition_count("app-markers") == 3


def test_new_partitions_of_a_topic_with_state_raise_an_error(tmp_path: Path) -> None:
    plan = planning(counting, tmp_path, {"in": 2})
    planner = plan.planner()
    start = planner.first()
    assert planner.next(start) is start

    plan.log.grow_topic("in", partitions=4)
    refresh_at_next_call(planner)
    with pytest.raises(TopologyError) as caught:
        planner.next(start)

    assert str(caught.value) == (
        "Topic 'in' has grown to 4 partitions, but its keys are kept in 2 tasks. `repartition` the "
        "stream before its state, or start again with `headrace reset app`."
    )


def test_new_partitions_of_a_topic_with_state_raise_an_error_at_a_restart_too(
    tmp_path: Path,
) -> None:
    plan = planning(counting, tmp_path, {"in": 2})
    plan.layout()
    plan.log.grow_topic("in", partitions=4)
    planner = plan.planner()

    with pytest.raises(TopologyError, match="'in' has grown to 4 partitions"):
        planner.next(planner.first())


def test_a_new_topic_that_matches_a_pattern_is_read_from_its_log_start_offset(
    tmp_path: Path,
) -> None:
    plan = planning(by_pattern, tmp_path, {"log-a": 1})
    append(plan.log, "log-a", 1)
    planner = plan.planner()
    first = planner.next(planner.first())

    create(plan.log, **{"log-b": 2})
    append(plan.log, "log-b", 3, partition=1)
    plan.log.delete_records({name("log-b", 1): 1})
    refresh_at_next_call(planner)
    second = planner.next(first)

    assert second.offsets == {"log-a": [1], "log-b": [0, 3]}
    assert ranges(first, second) == [Range("log-b", 1, 1, 3)]
    layout = read_layout("app", plan.checkpoint)
    assert layout is not None
    assert layout.count_of(0) == 2


def test_a_pattern_may_match_no_topic_at_the_start(tmp_path: Path) -> None:
    plan = planning(by_pattern, tmp_path, {})
    planner = plan.planner()
    start = planner.first()
    assert planner.next(start) is start

    create(plan.log, **{"log-a": 1})
    append(plan.log, "log-a", 1)
    refresh_at_next_call(planner)

    assert planner.next(start).offsets == {"log-a": [1]}


def test_the_first_topic_of_a_pattern_adds_tasks_and_changelog_partitions(
    tmp_path: Path,
) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream(re.compile("log-.*"), key=str, value=int)
        stream.group_by_key().count(materialized="counts").to_stream().to("out")

    plan = planning(build, tmp_path, {})
    planner = plan.planner()
    start = planner.first()
    assert planner.next(start) is start

    create(plan.log, **{"log-a": 3})
    append(plan.log, "log-a", 1, partition=2)
    refresh_at_next_call(planner)

    assert planner.next(start).offsets == {"log-a": [0, 0, 1]}
    assert plan.log.partition_count("app-counts-changelog") == 3
    assert plan.layout().count_of(0) == 3


def test_a_topic_that_two_patterns_match_raises_an_error_when_it_is_created(
    tmp_path: Path,
) -> None:
    plan = planning(by_two_patterns, tmp_path, {"ax": 1})
    planner = plan.planner()
    start = planner.first()
    before = read_layout("app", plan.checkpoint)
    create(plan.log, ab=1)
    append(plan.log, "ab", 2)
    refresh_at_next_call(planner)

    with pytest.raises(TopologyError, match="Topic 'ab' matches the pattern"):
        planner.next(start)

    assert read_layout("app", plan.checkpoint) == before


def test_lost_records_are_skipped_and_counted_if_the_settings_allow_that(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, fail_on_data_loss=False)
    append(plan.log, "in", 9)
    start = BatchBoundary({"in": [2]}, 1_000)
    plan.log.delete_records({name("in"): 5})
    planner = plan.planner()

    end = planner.next(start)
    [split] = planner.splits(start, end)

    assert split.ranges == (Range("in", 0, 5, 9),)
    assert split.lost == (Range("in", 0, 2, 5),)


def test_lost_records_are_counted_once_although_new_ones_come_late(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, fail_on_data_loss=False)
    append(plan.log, "in", 5)
    start = BatchBoundary({"in": [2]}, 1_000)
    plan.log.delete_records({name("in"): 5})
    planner = plan.planner()
    for _ in range(3):
        assert planner.next(start) is start
        refresh_at_next_call(planner)

    append(plan.log, "in", 1)
    end = planner.next(start)
    append(plan.log, "in", 1)
    later = planner.next(end)
    [split], [next_one] = planner.splits(start, end), planner.splits(end, later)

    assert (split.ranges, split.lost) == ((Range("in", 0, 5, 6),), (Range("in", 0, 2, 5),))
    assert (next_one.ranges, next_one.lost) == ((Range("in", 0, 6, 7),), ())


def test_records_that_were_deleted_before_the_first_batch_are_not_lost(
    tmp_path: Path,
) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 9)
    plan.log.delete_records({name("in"): 5})
    planner = plan.planner()

    start = planner.first()
    end = planner.next(start)

    assert [(each.start, each.end) for each in ranges(start, end)] == [(5, 9)]


def test_a_query_that_stops_at_the_current_ends_reads_no_later_records(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    planner.stop_at_current_ends()
    append(plan.log, "in", 4)

    ends = run(planner, planner.first())

    assert [end.offsets for end in ends] == [{"in": [3]}]
    assert ends[0].partitions_with_more == {}


def test_a_query_that_stops_at_the_current_ends_reads_the_records_that_it_writes_itself(
    tmp_path: Path,
) -> None:
    def build(builder: StreamsBuilder) -> None:
        copying(builder)
        builder.stream("out", key=str, value=int).to("copies")

    plan = planning(build, tmp_path, {"in": 1, "out": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    planner.stop_at_current_ends()
    first = planner.next(planner.first())
    append(plan.log, "in", 1)
    append(plan.log, "out", 3)

    assert [end.offsets for end in run(planner, first)] == [{"in": [3], "out": [3]}]


def test_a_paused_application_begins_no_batch(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    start = planner.first()

    plan.run_files.write(Control(paused=True))
    paused = planner.next(start)
    plan.run_files.write(Control())
    resumed = planner.next(start)

    assert paused is start
    assert resumed.offsets == {"in": [3]}
