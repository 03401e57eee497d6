"""Admission control: how many records the next batch may read, and when it may start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from headrace import Headers, ProducerRecord
from headrace.brokers import TopicPartition
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.log import (
    CHUNK_BYTES,
    RECORD_BYTES,
    OffsetRange,
    PartitionColumns,
    RecordColumns,
    TopicLog,
    record_size,
)
from headrace.errors import OffsetOutOfRangeError
from headrace.runtime.planning import admission
from headrace.runtime.planning.admission import Admission, TriggerInterval, share_evenly
from tests.unit.runtime.planning import FakeTime

A, B, C = (TopicPartition("topic", partition) for partition in range(3))
SMALL, LARGE = 10, 1_000_000
MINUTE = timedelta(minutes=1)


class Sizes:
    """A log whose records have a size and no content.

    Args:
        sizes: The size of each record, by topic.
        large_from: The first offset at which a record is large.
    """

    def __init__(self, *, large_from: int = 10**9, sizes: dict[str, int] | None = None) -> None:
        self._large_from = large_from
        self._sizes = sizes or {}
        self.samples: list[tuple[TopicPartition, int]] = []
        """The partitions and offsets that were read."""

    def read_ranges(self, ranges: Iterable[OffsetRange]) -> Iterator[PartitionColumns]:
        for partition, start, end in ranges:
            assert end == start + 1
            self.samples.append((partition, start))
            size = self._sizes.get(partition.topic, SMALL)
            size = LARGE if start >= self._large_from else size
            value = bytes(max(0, size - RECORD_BYTES))
            yield partition, RecordColumns([start], [0], [None], [value], None)


def limits(log: Sizes | None = None, **options: Any) -> Admission:
    """Return an admission on a log of records of 10 bytes."""
    return Admission(cast("TopicLog", log or Sizes()), **options)


def shares_of(bounds: Admission, available: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the shares of partitions that are read from offset 0."""
    return bounds.shares(dict.fromkeys(available, 0), available)


def test_the_first_batch_is_small() -> None:
    assert limits().limit == admission.FIRST_RECORDS
    assert limits(max_records=10).limit == 10


def test_the_limit_follows_the_speed_of_the_batches_before() -> None:
    bounds = limits(max_records=10**9)
    bounds.learn(bounds.limit, seconds=9.0, size=0)  # the first one starts everything

    for _ in range(5):
        bounds.learn(bounds.limit, seconds=bounds.limit / 50_000, size=0)

    assert bounds.limit == 50_000 * admission.TARGET_SECONDS


def test_the_time_of_the_first_batch_does_not_count() -> None:
    bounds = limits(max_records=10**9)

    bounds.learn(bounds.limit, seconds=1_000.0, size=0)

    assert bounds.limit == 8 * admission.FIRST_RECORDS


def test_many_batches_without_a_record_in_their_ranges_are_no_error() -> None:
    bounds = limits()
    bounds.learn(bounds.limit, seconds=1.0, size=1_000_000)

    for _ in range(1_100):
        bounds.learn(10, seconds=1.0, size=0)

    assert bounds.limit > admission.FIRST_RECORDS


def test_the_limit_changes_in_steps() -> None:
    bounds = limits(max_records=10**9)
    bounds.learn(0, seconds=1.0, size=0)
    before = bounds.limit

    bounds.learn(before, seconds=0.001, size=0)
    grown = bounds.limit
    bounds.learn(grown, seconds=10_000.0, size=0)

    assert before < grown <= 10 * before
    assert grown / 10 <= bounds.limit < grown


def test_a_batch_far_below_the_limit_does_not_change_it() -> None:
    bounds = limits()

    for _ in range(5):
        bounds.learn(10, seconds=8.0, size=100)

    assert bounds.limit == admission.FIRST_RECORDS


def test_the_limit_stays_between_its_bounds() -> None:
    bounds = limits()

    for _ in range(20):
        bounds.learn(bounds.limit, seconds=0.001, size=0)
    highest = bounds.limit
    for _ in range(20):
        bounds.learn(bounds.limit, seconds=10_000.0, size=0)

    assert highest == admission.MAX_RECORDS
    assert bounds.limit == admission.MIN_RECORDS


def test_large_records_lower_the_limit_below_its_minimum() -> None:
    bounds = limits(max_bytes=1_000_000)

    bounds.learn(100, seconds=1.0, size=100 * 50_000)

    assert bounds.limit == 20


def test_the_first_batch_leaves_room_for_tasks_that_make_more_than_they_read() -> None:
    admission = limits(Sizes(sizes={"topic": 10_000}), max_bytes=8_000_000)

    first = admission.shares({A: 0}, {A: 20_000})[A]
    admission.learn(first, 1.0, first * 10_000)

    assert first == 100
    assert admission.shares({A: 0}, {A: 20_000})[A] == 800


def test_a_record_that_is_larger_than_a_batch_may_be_is_read_alone() -> None:
    bounds = limits(max_bytes=10)

    bounds.learn(1, seconds=1.0, size=1_000)

    assert bounds.limit == 1


def test_one_batch_of_small_records_halves_the_expected_size_at_most() -> None:
    bounds = limits(max_bytes=1_000_000)
    bounds.learn(100, seconds=1.0, size=100 * 50_000)

    bounds.learn(100, seconds=1.0, size=100)

    assert bounds.limit == 40


def test_a_batch_without_records_does_not_change_the_expected_size() -> None:
    bounds = limits(max_bytes=1_000_000)
    bounds.learn(100, seconds=1.0, size=100 * 50_000)

    bounds.learn(0, seconds=1.0, size=0)

    assert bounds.limit == 20


SHARES = pytest.mark.parametrize(
    ("available", "shares"),
    [
        ({A: 10, B: 10}, {A: 10, B: 10}),
        ({A: 1_000, B: 1_000}, {A: 50, B: 50}),
        ({A: 1_000, B: 10, C: 1_000}, {A: 45, B: 10, C: 45}),
        ({A: 5, B: 0}, {A: 5}),
        ({}, {}),
    ],
)


@SHARES
def test_partitions_share_the_limit_and_leave_to_others_what_they_do_not_need(
    available: dict[TopicPartition, int], shares: dict[TopicPartition, int]
) -> None:
    assert share_evenly(available, 100) == shares


@SHARES
def test_partitions_share_the_limit_of_a_batch(
    available: dict[TopicPartition, int], shares: dict[TopicPartition, int]
) -> None:
    assert shares_of(limits(max_records=100), available) == shares


def test_each_partition_with_records_gets_one_at_least() -> None:
    assert shares_of(limits(max_records=1), {A: 5, B: 5, C: 5}) == {A: 1, B: 1, C: 1}


def test_the_first_batch_reads_more_records_of_tables_than_of_streams() -> None:
    table, other = TopicPartition("table", 0), TopicPartition("table", 1)
    bounds = limits(tables={"table"})
    plenty = 10 * admission.FIRST_TABLE_RECORDS

    first = shares_of(bounds, {A: plenty, table: 7_000, other: plenty})
    bounds.learn(50_000, seconds=1.0, size=0)
    later = shares_of(bounds, {A: plenty, other: plenty})

    assert first == {
        A: admission.FIRST_RECORDS,
        table: 7_000,
        other: admission.FIRST_TABLE_RECORDS - 7_000,
    }
    assert later[A] == later[other]


def test_a_table_of_large_records_takes_several_batches() -> None:
    bounds = limits(Sizes(sizes={"topic": 10_000}), max_bytes=8_000_000, tables={"topic"})

    assert shares_of(bounds, {A: 1_000}) == {A: 100}


def after_one_batch(log: Sizes) -> Admission:
    """Return an admission of at most 100 MB that has seen a batch of small records."""
    bounds = limits(log, max_bytes=100 * LARGE)
    bounds.learn(20_000, seconds=1.0, size=20_000 * SMALL)
    return bounds


def test_large_records_behind_small_ones_make_the_batch_smaller() -> None:
    assert shares_of(after_one_batch(Sizes(large_from=100_000)), {A: 10**6})[A] <= 400


def test_small_records_do_not_make_the_batch_smaller() -> None:
    assert shares_of(after_one_batch(Sizes()), {A: 10**6}) == {A: 160_000}


def test_many_records_are_sampled_at_nine_offsets() -> None:
    log = Sizes()

    shares_of(limits(log), {A: 8_001})

    assert log.samples == [(A, offset) for offset in range(0, 8_001, 1_000)]


def test_the_limit_that_the_status_reports_includes_the_samples() -> None:
    bounds = limits(Sizes(large_from=0), max_bytes=80 * LARGE)

    shares_of(bounds, {A: 100})

    assert bounds.limit == 10


def test_the_first_record_the_middle_and_the_last_one_are_samples() -> None:
    log = Sizes()

    limits(log).shares({A: 1_000, B: 5}, {A: 101, B: 1})

    assert sorted(log.samples) == [(A, 1_000), (A, 1_050), (A, 1_100), (B, 5), (B, 5), (B, 5)]


def test_partitions_count_by_their_shares() -> None:
    log = Sizes(sizes={"topic": 100, "other": 1_000})
    other = TopicPartition("other", 0)

    # 90 records of 100 bytes and 10 of 1,000 bytes: 190 bytes each.
    shares = shares_of(limits(log, max_bytes=8 * 19_000), {A: 90, other: 10})

    assert sum(shares.values()) == 100
    assert sum(shares_of(limits(log, max_bytes=8 * 18_999), {A: 90, other: 10}).values()) == 99


def test_only_the_partitions_with_the_largest_shares_are_sampled() -> None:
    log = Sizes()
    available = {TopicPartition("topic", partition): 1 + partition for partition in range(40)}

    shares_of(limits(log), available)

    sampled = {partition.partition for partition, _ in log.samples}
    assert sampled == set(range(24, 40))


def test_the_first_batch_is_sampled_however_small_it_is() -> None:
    assert shares_of(limits(Sizes(large_from=0), max_bytes=80 * LARGE), {A: 100}) == {A: 10}


def test_later_small_batches_are_not_sampled() -> None:
    log = Sizes()
    bounds = limits(log)

    for _ in range(5):
        shares_of(bounds, {A: 100, B: 100})

    assert len(log.samples) == 2 * 3


def test_later_batches_are_sampled_from_250_records_on() -> None:
    bounds = limits(Sizes(large_from=1_000), max_bytes=10 * LARGE)
    first = bounds.shares({A: 0}, {A: 500})
    few = bounds.shares({A: 1_000}, {A: 249})

    assert (first, few) == ({A: 500}, {A: 249})
    assert bounds.shares({A: 1_000}, {A: 250})[A] <= 10


@pytest.mark.parametrize("available", [{A: 0}, {}])
def test_a_batch_without_records_is_not_sampled(available: dict[TopicPartition, int]) -> None:
    log = Sizes(large_from=0)
    bounds = limits(log)

    assert shares_of(bounds, available) == {}
    assert log.samples == []
    shares_of(bounds, {A: 1})
    assert len(log.samples) == 3, "it was not the first batch"


def test_the_error_of_deleted_records_is_left_to_the_task_that_reads_them() -> None:
    class Deleted(Sizes):
        def read_ranges(self, ranges: Iterable[OffsetRange]) -> Iterator[PartitionColumns]:
            yield from super().read_ranges(ranges)
            raise OffsetOutOfRangeError("a", 0, offset=0, beginning=5)

    assert shares_of(limits(Deleted()), {A: 100}) == {A: 100}


def test_a_batch_of_which_all_records_are_deleted_is_read_as_if_they_were_small() -> None:
    class AllDeleted(Sizes):
        def read_ranges(self, ranges: Iterable[OffsetRange]) -> Iterator[PartitionColumns]:
            raise OffsetOutOfRangeError("a", 0, offset=0, beginning=5)

    assert shares_of(limits(AllDeleted(), max_bytes=1), {A: 100}) == {A: 100}


@pytest.mark.parametrize(
    "record",
    [
        ProducerRecord("a", 0, 1, b"key", bytes(1_000)),
        ProducerRecord("a", 0, 1, bytes(1_003), None),
        ProducerRecord("a", 0, 1, None, None, Headers([("name", bytes(999))])),
    ],
)
def test_keys_values_and_headers_have_a_size(record: ProducerRecord, tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "topics.db")
    log.create_topic("a")
    log.append([record] * 3)

    ((_, columns),) = log.read_ranges([(TopicPartition("a", 0), 0, 3)])

    assert columns.size() == 3 * record_size(record.key, record.value, record.headers) > 3 * 1_003
    log.close()


def test_chunks_are_bounded_by_records_and_by_bytes() -> None:
    values: list[bytes | None] = [*[b""] * 12_000, bytes(CHUNK_BYTES), b""]
    count = len(values)
    columns = RecordColumns([*range(count)], [0] * count, [None] * count, values, None)

    pieces = list(columns.pieces(columns.size()))

    assert [len(piece.offsets) for piece in pieces] == [5_000, 5_000, 2_000, 1, 1]
    assert [offset for piece in pieces for offset in piece.offsets] == columns.offsets


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr("headrace.runtime.planning.admission.time", fake)
    return fake


@pytest.mark.parametrize("trigger", ["continuous", "available_now", timedelta(0)])
def test_without_an_interval_a_batch_may_always_begin(trigger: str | timedelta) -> None:
    interval = TriggerInterval(trigger)

    assert [interval.is_over(), interval.is_over()] == [True, True]
    assert interval.remaining() == 0


def test_the_first_batch_begins_at_once_and_others_at_multiples_of_the_interval(
    fake_time: FakeTime,
) -> None:
    interval = TriggerInterval(MINUTE)

    first = interval.is_over(), interval.is_over(), interval.remaining()
    fake_time.advance(19.5)
    early = interval.is_over()
    fake_time.advance(1.5)
    second = interval.is_over(), interval.is_over(), interval.remaining()

    assert first == (True, False, 20.0)
    assert not early
    assert second == (True, False, 59.0)


def test_after_a_batch_that_took_longer_than_the_interval_the_next_begins_at_once(
    fake_time: FakeTime,
) -> None:
    interval = TriggerInterval(MINUTE)
    interval.is_over()

    fake_time.advance(150.0)

    assert interval.is_over()
    assert interval.remaining() == 50.0


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_a_change_of_the_time_of_day_changes_no_wait_that_has_begun(
    fake_time: FakeTime, step: float
) -> None:
    interval = TriggerInterval(MINUTE)
    interval.is_over()

    fake_time.now += step

    assert (interval.is_over(), interval.remaining()) == (False, 20.0)
    fake_time.advance(20.0)
    assert (interval.is_over(), interval.remaining()) == (True, 60.0)


def test_an_interval_that_is_skipped_is_over_at_once_and_the_next_one_is_whole(
    fake_time: FakeTime,
) -> None:
    interval = TriggerInterval(MINUTE)
    interval.is_over()

    interval.skip()

    assert interval.remaining() == 0
    assert [interval.is_over(), interval.is_over()] == [True, False]
    assert interval.remaining() == 20.0
