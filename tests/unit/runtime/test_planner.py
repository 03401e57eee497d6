"""What the next batch reads: bounds, the clock, ticks, and topics that change under way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace import (
    BrokerUnavailableError,
    OffsetOutOfRangeError,
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
    look_again,
    name,
    planning,
    run,
    scheduling,
    small_batches,
    with_global_table,
)


def test_a_batch_reads_what_is_there(tmp_path: Path) -> None:
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


def test_no_batch_is_larger_than_a_task_can_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 4)
    monkeypatch.setattr("headrace.runtime.planning.admission.MAX_RECORDS", 4)
    plan = planning(copying, tmp_path, {"in": 2})
    append(plan.log, "in", 9)
    append(plan.log, "in", 1, partition=1)
    planner = plan.planner()
    planner._admission = Admission(max_records=4)

    ends = run(planner, planner.first())

    assert [end.offsets["in"] for end in ends] == [[3, 1], [7, 1], [9, 1]]
    assert [end.partitions_with_more for end in ends] == [{"in": [0]}, {"in": [0]}, {}]


def test_partitions_that_have_more_are_named(
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


def test_a_repartition_has_more_while_what_flows_into_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(builder: StreamsBuilder) -> None:
        moved = builder.stream("in", key=str, value=int).select_key(lambda _k, v: str(v), key=str)
        table = builder.table("table", key=str, value=int)
        moved.join(table, lambda a, b: a + b, value=int, name="by").to("out")

    small_batches(monkeypatch, 4)
    plan = planning(build, tmp_path, {"in": 1, "table": 1})
    append(plan.log, "in", 9)
    planner = plan.planner()
    start = planner.first()
    end = planner.next(start)
    last = BatchBoundary({"in": [9], "table": [0]}, 1_000)

    [some], [rest] = planner.splits(start, end), planner.splits(end, last)

    assert [task_call.partitions_with_more for task_call in some.task_calls] == [
        [("app-by-repartition", -1)]
    ]
    assert [task_call.partitions_with_more for task_call in rest.task_calls] == [[]]


def test_a_repartition_has_more_while_a_topic_that_a_pattern_matches_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream(re.compile("log-.*"), key=str, value=int)
        moved = stream.select_key(lambda _k, v: str(v), key=str)
        table = builder.table("table", key=str, value=int)
        moved.join(table, lambda a, b: a + b, value=int, name="by").to("out")

    small_batches(monkeypatch, 4)
    plan = planning(build, tmp_path, {"log-a": 1, "table": 1})
    append(plan.log, "log-a", 9)
    planner = plan.planner()
    start = planner.first()
    end = planner.next(start)

    [some] = planner.splits(start, end)

    assert end.partitions_with_more == {"log-a": [0]}
    assert [
        task_call.partitions_with_more
        for task_call in some.task_calls
        if task_call.subtopology == 1
    ] == [[("app-by-repartition", -1)]]


def test_global_tables_are_read_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 2)
    plan = planning(with_global_table, tmp_path, {"in": 1, "rates": 1})
    append(plan.log, "in", 1)
    append(plan.log, "rates", 3)
    planner = plan.planner()
    planner._admission = Admission(max_records=2)
    first = planner.first()
    append(plan.log, "rates", 1)  # after the start: no longer in the way

    ends = run(planner, first)

    assert first.global_load_ends == {"rates": [3]}
    assert [(end.offsets["rates"], end.offsets["in"]) for end in ends] == [
        ([2], [0]),
        ([3], [0]),
        ([4], [1]),
    ]


def test_the_clock_is_the_batch_s_and_never_goes_back(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    planner = plan.planner()
    append(plan.log, "in", 1)
    first = planner.next(planner.first())

    plan.set_clock(500)
    append(plan.log, "in", 1)
    second = planner.next(first)
    plan.set_clock(2_000)
    append(plan.log, "in", 1)
    third = planner.next(second)

    assert [first.clock, second.clock, third.clock] == [1_000, 1_000, 2_000]


def test_without_another_clock_it_is_the_time_of_day(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    plan.run_files.write(Control())
    append(plan.log, "in", 1)
    planner = plan.planner()

    assert planner.next(planner.first()).clock > 1_700_000_000_000


def test_time_alone_is_no_reason_for_a_batch(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    planner = plan.planner()
    start = planner.first()

    plan.set_clock(10**12)

    assert planner.next(start) is start


def test_tasks_that_may_schedule_are_called_at_the_start_and_when_something_is_due(
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


def test_nothing_is_due_if_no_task_waits(tmp_path: Path) -> None:
    plan = planning(scheduling, tmp_path, {"in": 1})
    planner = plan.planner()
    first = planner.next(planner.first())
    plan.end_batch(0, TaskReport("0_0"))
    plan.set_clock(10**12)

    assert planner.next(first) is first


def test_new_partitions_of_a_stateless_source_get_tasks_before_they_are_read(
    tmp_path: Path,
) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 1)
    planner = plan.planner()
    first = planner.next(planner.first())

    plan.log.grow_topic("in", partitions=3)
    append(plan.log, "in", 2, partition=2)
    unseen = planner.next(first)
    look_again(planner)
    seen = planner.next(first)

    layout = read_layout("app", plan.checkpoint)
    assert layout is not None
    assert unseen is first
    assert seen.offsets == {"in": [1, 0, 2]}
    assert [layout.placement(0, partition).task_number for partition in range(3)] == [0, 1, 2]
    assert plan.log.partition_count("app-markers") == 3
    assert planner.splits(first, seen)[0].ranges == tuple(ranges(first, seen))


def test_new_tasks_are_written_down_when_their_markers_have_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 1)
    planner = plan.planner()
    first = planner.next(planner.first())
    plan.log.grow_topic("in", partitions=3)
    look_again(planner)

    def fail(*_: object) -> None:
        raise BrokerUnavailableError("No answer.")

    with monkeypatch.context() as broken:
        broken.setattr("headrace.runtime.planning.planner.ensure_marker_topic", fail)
        with pytest.raises(BrokerUnavailableError):
            planner.next(first)
    layout = read_layout("app", plan.checkpoint)
    assert layout is not None
    # As a query that starts again in the same session makes one.
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


def test_new_partitions_whose_keys_are_kept_elsewhere_are_refused(tmp_path: Path) -> None:
    plan = planning(counting, tmp_path, {"in": 2})
    planner = plan.planner()
    start = planner.first()
    assert planner.next(start) is start

    plan.log.grow_topic("in", partitions=4)
    look_again(planner)
    with pytest.raises(TopologyError) as caught:
        planner.next(start)

    assert str(caught.value) == (
        "Topic 'in' has grown to 4 partitions, but its keys are kept in 2 tasks. `repartition` the "
        "stream before its state, or start again with `headrace reset app`."
    )


def test_they_are_refused_at_a_restart_too(tmp_path: Path) -> None:
    plan = planning(counting, tmp_path, {"in": 2})
    plan.layout()
    plan.log.grow_topic("in", partitions=4)
    planner = plan.planner()

    with pytest.raises(TopologyError, match="'in' has grown to 4 partitions"):
        planner.next(planner.first())


def test_a_topic_that_comes_to_match_a_pattern_is_read_from_its_beginning(tmp_path: Path) -> None:
    plan = planning(by_pattern, tmp_path, {"log-a": 1})
    append(plan.log, "log-a", 1)
    planner = plan.planner()
    first = planner.next(planner.first())

    create(plan.log, **{"log-b": 2})
    append(plan.log, "log-b", 3, partition=1)
    plan.log.delete_records({name("log-b", 1): 1})
    look_again(planner)
    second = planner.next(first)

    assert second.offsets == {"log-a": [1], "log-b": [0, 3]}
    assert ranges(first, second) == [Range("log-b", 1, 1, 3)]
    layout = read_layout("app", plan.checkpoint)
    assert layout is not None
    assert layout.count_of(0) == 2


def test_a_pattern_may_match_nothing_yet(tmp_path: Path) -> None:
    plan = planning(by_pattern, tmp_path, {})
    planner = plan.planner()
    start = planner.first()
    assert planner.next(start) is start

    create(plan.log, **{"log-a": 1})
    append(plan.log, "log-a", 1)
    look_again(planner)

    assert planner.next(start).offsets == {"log-a": [1]}


def test_the_first_topic_of_a_pattern_gives_its_state_tasks_and_changelog_partitions(
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
    look_again(planner)

    assert planner.next(start).offsets == {"log-a": [0, 0, 1]}
    assert plan.log.partition_count("app-counts-changelog") == 3
    assert plan.layout().count_of(0) == 3


def test_a_topic_that_two_patterns_match_stops_the_application_when_it_appears(
    tmp_path: Path,
) -> None:
    plan = planning(by_two_patterns, tmp_path, {"ax": 1})
    planner = plan.planner()
    start = planner.first()
    before = read_layout("app", plan.checkpoint)
    create(plan.log, ab=1)
    append(plan.log, "ab", 2)
    look_again(planner)

    with pytest.raises(TopologyError, match="Topic 'ab' matches the pattern"):
        planner.next(start)

    assert read_layout("app", plan.checkpoint) == before


def test_lost_records_stop_the_application_with_their_range(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 9)
    start = BatchBoundary({"in": [2]}, 1_000)
    plan.log.delete_records({name("in"): 5})

    with pytest.raises(OffsetOutOfRangeError) as caught:
        plan.planner().next(start)

    assert (caught.value.offset, caught.value.beginning) == (2, 5)
    assert "Offset 2 of 'in', partition 0, is gone" in str(caught.value)
    assert "3 offsets were lost" in str(caught.value)


def test_lost_records_are_skipped_and_counted_where_that_is_wanted(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, fail_on_data_loss=False)
    append(plan.log, "in", 9)
    start = BatchBoundary({"in": [2]}, 1_000)
    plan.log.delete_records({name("in"): 5})
    planner = plan.planner()

    end = planner.next(start)
    [split] = planner.splits(start, end)

    assert split.ranges == (Range("in", 0, 5, 9),)
    assert split.lost == (Range("in", 0, 2, 5),)


def test_what_a_large_batch_leaves_out_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.planning.planner._SMALL_BATCH", 1)
    plan = planning(copying, tmp_path, {"in": 2}, fail_on_data_loss=False)
    for partition in (0, 1):
        append(plan.log, "in", 9, partition=partition)
    start = BatchBoundary({"in": [2, 3]}, 1_000)
    plan.log.delete_records({name("in"): 5, name("in", 1): 5})
    planner = plan.planner()

    splits = planner.splits(start, planner.next(start))

    assert len(splits) == 2
    lost = [each for split in splits for each in split.lost]
    assert lost == [Range("in", 0, 2, 5), Range("in", 1, 3, 5)]


def test_lost_records_are_counted_once_however_long_nothing_new_comes(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1}, fail_on_data_loss=False)
    append(plan.log, "in", 5)
    start = BatchBoundary({"in": [2]}, 1_000)
    plan.log.delete_records({name("in"): 5})
    planner = plan.planner()
    for _ in range(3):
        assert planner.next(start) is start
        look_again(planner)

    append(plan.log, "in", 1)
    end = planner.next(start)
    append(plan.log, "in", 1)
    later = planner.next(end)
    [split], [next_one] = planner.splits(start, end), planner.splits(end, later)

    assert (split.ranges, split.lost) == ((Range("in", 0, 5, 6),), (Range("in", 0, 2, 5),))
    assert (next_one.ranges, next_one.lost) == ((Range("in", 0, 6, 7),), ())


def test_a_new_topic_is_read_from_its_beginning_when_its_first_records_come_late(
    tmp_path: Path,
) -> None:
    plan = planning(by_pattern, tmp_path, {"log-a": 1})
    planner = plan.planner()
    start = planner.first()
    create(plan.log, **{"log-b": 1})
    append(plan.log, "log-b", 2)
    plan.log.delete_records({name("log-b"): 2})
    look_again(planner)
    assert planner.next(start) is start

    append(plan.log, "log-b", 1)
    end = planner.next(start)

    assert [(each.topic, each.start, each.end) for each in ranges(start, end)] == [("log-b", 2, 3)]


def test_records_that_are_gone_before_a_partition_was_ever_read_are_not_lost(
    tmp_path: Path,
) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 9)
    plan.log.delete_records({name("in"): 5})
    planner = plan.planner()

    start = planner.first()
    end = planner.next(start)

    assert [(each.start, each.end) for each in ranges(start, end)] == [(5, 9)]


def test_what_is_available_now_ends_at_what_was_there(tmp_path: Path) -> None:
    plan = planning(copying, tmp_path, {"in": 1})
    append(plan.log, "in", 3)
    planner = plan.planner()
    planner.stop_at_current_ends()
    append(plan.log, "in", 4)

    ends = run(planner, planner.first())

    assert [end.offsets for end in ends] == [{"in": [3]}]
    assert ends[0].partitions_with_more == {}


def test_topics_that_appear_later_are_not_available_now(tmp_path: Path) -> None:
    plan = planning(by_pattern, tmp_path, {"log-a": 1})
    planner = plan.planner()
    planner.stop_at_current_ends()
    start = planner.first()
    create(plan.log, **{"log-b": 1})
    append(plan.log, "log-b", 2)
    look_again(planner)

    assert planner.next(start) is start


def test_what_the_application_itself_writes_is_followed_to_its_end(tmp_path: Path) -> None:
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


def test_an_application_that_is_paused_begins_no_batch(tmp_path: Path) -> None:
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
