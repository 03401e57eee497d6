"""A batch is planned after a look at how large its records are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from headrace import Headers, ProducerRecord
from headrace.brokers import TopicPartition
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.log import OffsetRange, PartitionColumns, RecordColumns
from headrace.errors import OffsetOutOfRangeError
from headrace.runtime.planning.admission import Admission
from headrace.runtime.planning.probing import Probing

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
SMALL, LARGE = 10, 1_000_000


class Sizes:
    """A log that says how large a record is without having any."""

    def __init__(self, *, large_from: int) -> None:
        self._large_from = large_from
        self.looks = 0

    def read_ranges(self, ranges: Iterable[OffsetRange]) -> Iterator[PartitionColumns]:
        for name, start, _ in ranges:
            self.looks += 1
            value = bytes(LARGE if start >= self._large_from else SMALL)
            yield name, RecordColumns([start], [0], [None], [value], None)


def shares(log: object, bounds: Admission, *, begin: int = 0, count: int = 10**6) -> int:
    probing = Probing(log)  # type: ignore[arg-type]  # all that it asks
    return probing.shares(bounds, {A: begin}, {A: count})[A]


def test_records_that_become_large_behind_small_ones_make_the_batch_smaller() -> None:
    bounds = Admission(max_bytes=100 * LARGE)
    bounds.learn(20_000, seconds=1.0, size=20_000 * SMALL)

    assert bounds.shares({A: 10**6})[A] == 160_000
    assert shares(Sizes(large_from=100_000), bounds) <= 400


def test_records_that_stay_small_are_read_as_before() -> None:
    bounds = Admission(max_bytes=100 * LARGE)
    bounds.learn(20_000, seconds=1.0, size=20_000 * SMALL)

    assert shares(Sizes(large_from=10**9), bounds) == 160_000


def test_the_first_batch_is_looked_into_however_small_it_is() -> None:
    assert shares(Sizes(large_from=0), Admission(max_bytes=10 * LARGE), count=100) == 10


def test_later_small_batches_are_not_looked_into() -> None:
    log, bounds = Sizes(large_from=10**9), Admission()
    probing = Probing(log)  # type: ignore[arg-type]  # all that it asks

    for _ in range(5):
        probing.shares(bounds, {A: 0, B: 0}, {A: 100, B: 100})

    assert log.looks == 2 * 3


def test_later_batches_of_as_many_records_as_could_be_too_large_are_looked_into() -> None:
    bounds = Admission(max_bytes=10 * LARGE)
    probing = Probing(Sizes(large_from=1_000))  # type: ignore[arg-type]  # all that it asks

    assert probing.shares(bounds, {A: 0}, {A: 500})[A] == 500
    assert probing.shares(bounds, {A: 1_000}, {A: 500})[A] <= 10


def test_nothing_to_read_is_not_looked_into() -> None:
    log = Sizes(large_from=0)

    assert Probing(log).shares(Admission(), {A: 5}, {A: 0}) == {}  # type: ignore[arg-type]
    assert log.looks == 0


def test_records_that_are_gone_meanwhile_are_left_to_those_who_read_them() -> None:
    class Gone(Sizes):
        def read_ranges(self, ranges: Iterable[OffsetRange]) -> Iterator[PartitionColumns]:
            yield from super().read_ranges(ranges)
            raise OffsetOutOfRangeError("a", 0, offset=0, beginning=5)

    assert shares(Gone(large_from=10**9), Admission(), count=100) == 100


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

    ((_, columns),) = log.read_ranges([(A, 0, 3)])

    assert columns.size() == 3 * 1_003
    log.close()
