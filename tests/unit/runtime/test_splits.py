"""Splits: how Spark tasks share the records of a batch, and which tasks are called."""

from __future__ import annotations

import re

import pytest

from headrace import StreamsBuilder
from headrace.runtime.batches import Batch, BatchBoundary, Range, ranges
from headrace.runtime.exchange.packing import Split, TaskCall
from headrace.runtime.planning.splits import split_batch
from tests.unit.runtime.planning import (
    Build,
    copying,
    counting,
    execution_plan,
    joining,
    joining_behind_two_repartitions,
    layout_of,
    scheduling,
)

BATCH = Batch(clock=2, digest="digest")


def splits_of(
    build: Build, partitions: dict[str, int], start: BatchBoundary, end: BatchBoundary
) -> list[Split]:
    """Return the splits of a batch over two shuffle partitions."""
    plan = execution_plan(build)
    return split_batch(plan, layout_of(plan, partitions), BATCH, start, end)


def splits_up_to(build: Build, offsets: dict[str, list[int]]) -> list[Split]:
    """Return the splits of a batch that reads all partitions from offset 0."""
    start = BatchBoundary({topic: [0] * len(some) for topic, some in offsets.items()}, 1)
    partitions = {topic: len(some) for topic, some in offsets.items()}
    return splits_of(build, partitions, start, BatchBoundary(offsets, 2))


def calls_of(
    build: Build, partitions: dict[str, int], partitions_with_more: dict[str, list[int]]
) -> dict[str, list[tuple[str, int]]]:
    """Return the inputs with more records, by the tasks that a batch without records calls."""
    offsets = {topic: [0] * count for topic, count in partitions.items()}
    end = BatchBoundary(offsets, 2, partitions_with_more)
    [split] = splits_of(build, partitions, BatchBoundary(offsets, 1), end)
    assert split.ranges == ()
    return {
        f"{call.subtopology}_{call.partition}": call.partitions_with_more
        for call in split.task_calls
    }


def size_of(split: Split) -> int:
    return sum(offset_range.end - offset_range.start for offset_range in split.ranges)


def test_one_spark_task_reads_a_small_batch() -> None:
    splits = splits_up_to(counting, {"in": [5_000] * 4})

    assert [split.ranges for split in splits] == [
        tuple(Range("in", partition, 0, 5_000) for partition in range(4))
    ]


def test_a_batch_of_one_more_record_is_large() -> None:
    assert len(splits_up_to(counting, {"in": [5_000, 5_000, 5_000, 5_001]})) == 2


def test_spark_tasks_share_a_large_batch_evenly_and_no_partition_is_split() -> None:
    offsets = {"in": [40_000, 10_000, 20_000, 10_000]}
    splits = splits_up_to(scheduling, offsets)
    read = ranges(BatchBoundary({"in": [0] * 4}, 1), BatchBoundary(offsets, 2))

    assert [size_of(split) for split in splits] == [40_000, 40_000]
    assert {each for split in splits for each in split.ranges} == {*read}
    assert sum(len(split.ranges) for split in splits) == 4


def test_one_spark_task_calls_the_tasks_of_a_large_batch() -> None:
    splits = splits_up_to(scheduling, {"in": [20_000] * 4})

    assert [len(split.task_calls) for split in splits] == [4, 0]


def test_one_spark_task_reads_a_large_batch_of_one_partition() -> None:
    splits = splits_up_to(counting, {"in": [90_000, 0]})

    assert [split.ranges for split in splits] == [(Range("in", 0, 0, 90_000),)]


def test_no_spark_task_has_nothing_to_read() -> None:
    plan = execution_plan(copying)
    layout = layout_of(plan, {"in": 2})
    layout.shuffle_partitions = 5
    start, end = BatchBoundary({"in": [0, 0]}, 1), BatchBoundary({"in": [20_000, 20_000]}, 2)

    splits = split_batch(plan, layout, BATCH, start, end)

    assert [len(split.ranges) for split in splits] == [1, 1]


def test_a_batch_without_records_has_one_split() -> None:
    assert splits_up_to(copying, {"in": [0]}) == [Split(BATCH, ())]


@pytest.mark.parametrize("size", [10, 30_000])
def test_each_split_knows_its_batch(size: int) -> None:
    splits = splits_up_to(copying, {"in": [size, size]})

    assert {split.batch for split in splits} == {BATCH}


@pytest.mark.parametrize(("size", "count"), [(4, 1), (30_000, 2)])
def test_one_split_has_the_lost_ranges_of_a_batch(size: int, count: int) -> None:
    start = BatchBoundary({"in": [2, 3]}, 1)
    end = BatchBoundary({"in": [5 + size, 5 + size]}, 2, start_overrides={"in": {"0": 5, "1": 5}})

    splits = splits_of(copying, {"in": 2}, start, end)

    assert len(splits) == count
    assert [each for split in splits for each in split.ranges] == [
        Range("in", 0, 5, 5 + size),
        Range("in", 1, 5, 5 + size),
    ]
    assert [each for split in splits for each in split.lost] == [
        Range("in", 0, 2, 5),
        Range("in", 1, 3, 5),
    ]


def test_the_same_boundaries_give_the_same_splits() -> None:
    offsets = {"in": [20_000, 7, 20_000], "table": [20_000, 20_000, 3]}

    assert splits_up_to(joining, offsets) == splits_up_to(joining, offsets)


@pytest.mark.parametrize("build", [copying, counting])
def test_tasks_with_one_input_and_no_schedule_are_not_called(build: Build) -> None:
    assert calls_of(build, {"in": 2}, {"in": [0, 1]}) == {}


def test_tasks_that_may_schedule_are_called_in_each_batch() -> None:
    assert calls_of(scheduling, {"in": 2}, {}) == {"0_0": [], "0_1": []}


def test_a_call_names_its_task() -> None:
    plan = execution_plan(scheduling)
    layout = layout_of(plan, {"in": 2})
    boundary = BatchBoundary({"in": [0, 0]}, 1)

    [split] = split_batch(plan, layout, BATCH, boundary, boundary)

    assert split.task_calls == tuple(
        TaskCall(0, partition, layout.placement(0, partition).task_number, [])
        for partition in range(2)
    )


def test_tasks_with_several_inputs_are_called_if_one_of_them_has_more() -> None:
    calls = calls_of(joining, {"in": 3, "table": 3}, {"in": [0], "table": [0, 1]})

    assert calls == {"0_0": [("in", 0), ("table", 0)], "0_1": [("table", 1)]}


def joining_after_select_key(builder: StreamsBuilder) -> None:
    moved = builder.stream("in", key=str, value=int).select_key(lambda _k, v: str(v), key=str)
    table = builder.table("table", key=str, value=int)
    moved.join(table, lambda a, b: a + b, value=int, name="by").to("out")


def test_a_repartition_has_more_while_its_source_has() -> None:
    partitions = {"in": 1, "table": 1}

    assert calls_of(joining_after_select_key, partitions, {"in": [0]}) == {
        "1_0": [("app-by-repartition", -1)]
    }
    assert calls_of(joining_after_select_key, partitions, {"table": [0]}) == {"1_0": [("table", 0)]}
    assert calls_of(joining_after_select_key, partitions, {"in": []}) == {"1_0": []}
    assert calls_of(joining_after_select_key, partitions, {}) == {"1_0": []}


def test_a_repartition_has_more_while_any_partition_far_upstream_has() -> None:
    partitions = {"in": 2, "first-table": 2, "second-table": 2}
    plan = execution_plan(joining_behind_two_repartitions)
    first, second = (plan.reader_of(f"{each}-table") for each in ("first", "second"))
    assert first is not None
    assert second is not None

    calls = calls_of(joining_behind_two_repartitions, partitions, {"in": [1]})

    assert calls == {
        **{f"{first.id}_{partition}": [("app-first-repartition", -1)] for partition in (0, 1)},
        **{f"{second.id}_{partition}": [("app-second-repartition", -1)] for partition in (0, 1)},
    }


def test_a_repartition_has_more_while_a_topic_that_a_pattern_matches_has() -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream(re.compile("log-.*"), key=str, value=int)
        moved = stream.select_key(lambda _k, v: str(v), key=str)
        table = builder.table("table", key=str, value=int)
        moved.join(table, lambda a, b: a + b, value=int, name="by").to("out")

    calls = calls_of(build, {"log-a": 1, "table": 1}, {"log-a": [0]})

    assert calls["1_0"] == [("app-by-repartition", -1)]
