"""Batch boundaries, which Spark keeps between batches, and the offsets that a batch reads."""

from __future__ import annotations

import json

from headrace.runtime.batches import BatchBoundary, Range, digest, lost_ranges, ranges


def test_a_position_survives_spark_s_json() -> None:
    position = BatchBoundary(
        offsets={"orders": [3, 4]},
        clock=17,
        partitions_with_more={"orders": [1]},
        start_overrides={"orders": {"1": 2}},
        global_load_ends={"rates": [9]},
    )

    again = BatchBoundary.from_dict(json.loads(json.dumps(position.as_dict())))

    assert again == position


def test_a_partition_that_was_never_read_is_at_its_beginning() -> None:
    position = BatchBoundary(offsets={"orders": [3]}, clock=0)

    assert position.offset("orders", 0) == 3
    assert position.offset("orders", 1) == 0
    assert position.offset("others", 0) == 0


def test_a_batch_reads_what_lies_between_two_positions_in_the_order_of_topics() -> None:
    start = BatchBoundary(offsets={"b": [0, 5], "a": [1]}, clock=1)
    end = BatchBoundary(offsets={"b": [2, 5, 3], "a": [4]}, clock=2)

    assert ranges(start, end) == [
        Range("a", 0, 1, 4),
        Range("b", 0, 0, 2),
        Range("b", 2, 0, 3),
    ]


def test_a_batch_begins_at_its_own_start_and_not_at_the_last_end() -> None:
    start = BatchBoundary(offsets={"a": [1]}, clock=1)
    end = BatchBoundary(offsets={"a": [9]}, clock=2, start_overrides={"a": {"0": 7}})

    assert ranges(start, end) == [Range("a", 0, 7, 9)]


def test_a_skipped_range_is_lost_only_in_a_partition_that_was_read_before() -> None:
    start = BatchBoundary(offsets={"a": [1, 4]}, clock=1)
    end = BatchBoundary(
        offsets={"a": [9, 4, 5], "b": [3]},
        clock=2,
        start_overrides={"a": {"0": 7, "2": 3}, "b": {"0": 2}},
    )

    assert lost_ranges(start, end) == [Range("a", 0, 1, 7)]


def test_the_digest_covers_everything_a_replay_depends_on() -> None:
    start = BatchBoundary(offsets={"a": [1]}, clock=1)
    ends = [
        BatchBoundary(offsets={"a": [2]}, clock=2),
        BatchBoundary(offsets={"a": [3]}, clock=2),
        BatchBoundary(offsets={"a": [2]}, clock=3),
        BatchBoundary(offsets={"a": [2]}, clock=2, partitions_with_more={"a": [0]}),
        BatchBoundary(offsets={"a": [2]}, clock=2, start_overrides={"a": {"0": 1}}),
    ]

    digests = [digest(start, end) for end in ends]

    assert len({*digests, digest(ends[0], ends[0])}) == len(ends) + 1
    assert digests[0] == digest(start, BatchBoundary.from_dict(ends[0].as_dict()))
