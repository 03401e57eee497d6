"""Admission: how many records the next batch may have."""

from __future__ import annotations

import pytest

from headrace.brokers.log import TopicPartition
from headrace.runtime.planning import admission
from headrace.runtime.planning.admission import Admission

A, B, C = (TopicPartition("topic", partition) for partition in range(3))


def test_the_first_batch_is_small() -> None:
    assert Admission().limit == admission.FIRST_RECORDS
    assert Admission(max_records=10).limit == 10


def test_the_limit_follows_what_batches_manage_in_the_time_they_may_take() -> None:
    bounds = Admission(max_records=10**9)
    bounds.learn(bounds.limit, seconds=9.0, size=0)  # the first one tells nothing

    for _ in range(5):
        bounds.learn(bounds.limit, seconds=bounds.limit / 50_000, size=0)

    assert bounds.limit == 50_000 * admission.TARGET_SECONDS


def test_the_limit_changes_in_steps() -> None:
    bounds = Admission(max_records=10**9)
    bounds.learn(0, seconds=1.0, size=0)
    before = bounds.limit

    bounds.learn(before, seconds=0.001, size=0)
    grown = bounds.limit
    bounds.learn(grown, seconds=10_000.0, size=0)

    assert before < grown <= 10 * before
    assert grown / 10 <= bounds.limit < grown


def test_a_batch_far_below_the_limit_says_nothing_about_it() -> None:
    bounds = Admission()

    for _ in range(5):
        bounds.learn(10, seconds=8.0, size=100)

    assert bounds.limit == admission.FIRST_RECORDS


def test_the_limit_stays_between_its_bounds() -> None:
    bounds = Admission()

    for _ in range(20):
        bounds.learn(bounds.limit, seconds=0.001, size=0)
    highest = bounds.limit
    for _ in range(20):
        bounds.learn(bounds.limit, seconds=10_000.0, size=0)

    assert highest == admission.MAX_RECORDS
    assert bounds.limit == admission.MIN_RECORDS


def test_large_records_lower_the_limit_below_its_least() -> None:
    bounds = Admission(max_bytes=1_000_000)

    bounds.learn(100, seconds=1.0, size=100 * 50_000)

    assert bounds.limit == 20


def test_a_record_larger_than_a_batch_may_be_is_still_read() -> None:
    bounds = Admission(max_bytes=10)

    bounds.learn(1, seconds=1.0, size=1_000)

    assert bounds.limit == 1


def test_one_batch_of_small_records_does_not_forget_how_large_they_can_be() -> None:
    bounds = Admission(max_bytes=1_000_000)
    bounds.learn(100, seconds=1.0, size=100 * 50_000)

    bounds.learn(100, seconds=1.0, size=100)

    assert bounds.limit == 40


@pytest.mark.parametrize(
    ("available", "shares"),
    [
        ({A: 10, B: 10}, {A: 10, B: 10}),
        ({A: 1_000, B: 1_000}, {A: 50, B: 50}),
        ({A: 1_000, B: 10, C: 1_000}, {A: 45, B: 10, C: 45}),
        ({A: 5, B: 0}, {A: 5}),
        ({}, {}),
    ],
)
def test_partitions_share_the_limit_and_what_one_does_not_need_goes_to_the_others(
    available: dict[TopicPartition, int], shares: dict[TopicPartition, int]
) -> None:
    assert Admission(max_records=100).shares(available) == shares


def test_the_first_batch_reads_of_tables_what_streams_would_wait_for() -> None:
    table, other = TopicPartition("table", 0), TopicPartition("table", 1)
    bounds = Admission(tables={"table"})
    plenty = 10 * admission.FIRST_TABLE_RECORDS

    first = bounds.shares({A: plenty, table: 7_000, other: plenty})
    bounds.learn(50_000, seconds=1.0, size=0)
    later = bounds.shares({A: plenty, other: plenty})

    assert first == {
        A: admission.FIRST_RECORDS,
        table: 7_000,
        other: admission.FIRST_TABLE_RECORDS - 7_000,
    }
    assert later[A] == later[other]


def test_tables_of_large_records_are_read_in_parts() -> None:
    bounds = Admission(max_bytes=1_000_000, tables={"topic"})

    bounds.expect(10_000.0)

    assert bounds.shares({A: 1_000}) == {A: 100}


def test_every_partition_gets_on_however_small_the_limit_is() -> None:
    bounds = Admission(max_records=1)

    assert bounds.shares({A: 5, B: 5, C: 5}) == {A: 1, B: 1, C: 1}
