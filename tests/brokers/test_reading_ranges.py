"""Several ranges of a log, read together; see `TopicLog.read_ranges`."""

from __future__ import annotations

import pytest

from headrace import OffsetOutOfRangeError, UnknownTopicError
from headrace.brokers import TopicPartition
from headrace.brokers.log import CHUNK_BYTES
from headrace.brokers.sessions import Broker
from headrace.records import headers_of
from tests.brokers.appending import assert_holds, record, values
from tests.brokers.consuming import Named


def offsets_of(
    log: Broker, ranges: list[tuple[TopicPartition, int, int]]
) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for name, columns in log.read_ranges(ranges):
        found.setdefault(name, []).extend(columns.offsets)
    return found


def test_several_ranges_are_read_together(log: Broker, topic: str, named: Named) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    third = TopicPartition(named("others"), 0)
    log.create_topic(third.topic)
    log.append([record(topic, b"%d" % number) for number in range(12_000)])
    log.append([record(topic, b"-%d" % number, partition=1) for number in range(300)])
    log.append([record(third.topic, b"o%d" % number) for number in range(300)])
    ranges = [(first, 2_000, 11_000), (second, 7, 290), (third, 0, 300)]

    for _ in range(3):
        read = {name: list[bytes | None]() for name, _, _ in ranges}
        for name, columns in log.read_ranges(ranges):
            read[name] += columns.values
            assert 0 < len(columns.offsets) <= 5_000

        assert read[first] == [b"%d" % number for number in range(2_000, 11_000)]
        assert read[second] == [b"-%d" % number for number in range(7, 290)]
        assert read[third] == [b"o%d" % number for number in range(300)]


def test_ranges_of_many_new_topics_are_read_by_a_log_that_is_open(
    log: Broker, topic: str, named: Named
) -> None:
    log.append([record(topic, b"a")])
    values(log, TopicPartition(topic, 0))
    many = [TopicPartition(named(f"new-{number}"), 0) for number in range(10)]
    for name in many:
        log.create_topic(name.topic)
    log.append([record(name.topic, b"a") for name in many])

    assert offsets_of(log, [(name, 0, 1) for name in many[:2]]) == {name: [0] for name in many[:2]}
    assert offsets_of(log, [(name, 0, 1) for name in many]) == {name: [0] for name in many}


def test_ranges_without_records_yield_nothing(log: Broker, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    log.append([record(topic, b"a"), record(topic, b"b")])

    assert offsets_of(log, []) == {}
    assert offsets_of(log, [(first, 1, 1), (second, 0, 0)]) == {}
    assert offsets_of(log, [(first, 1, 2), (second, 0, 0)]) == {first: [1]}


def test_ranges_end_where_a_transaction_does(log: Broker, topic: str, named: Named) -> None:
    names = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with log.transaction(named("writer")) as transaction:
        transaction.append([record(topic, b"a"), record(topic, b"b", partition=1)])
    for name in names:
        assert_holds(log, name, [b"a" if name.partition == 0 else b"b"])
    ends = log.end_offsets(names)

    assert offsets_of(log, [(name, 0, ends[name]) for name in names]) == {
        name: [0] for name in names
    }


def test_large_records_of_several_ranges_are_read_in_pieces(log: Broker, topic: str) -> None:
    names = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for name in names:
        log.append([record(topic, bytes(900_000), partition=name.partition) for _ in range(25)])

    sizes = {name: list[int]() for name in names}
    for name, columns in log.read_ranges([(name, 0, 25) for name in names]):
        sizes[name].append(len(columns.offsets))

    assert [sum(each) for each in sizes.values()] == [25, 25]
    assert max(size for each in sizes.values() for size in each) < 12


@pytest.mark.parametrize("part", ["key", "headers"])
def test_large_keys_and_headers_are_read_in_pieces_too(log: Broker, topic: str, part: str) -> None:
    name = TopicPartition(topic, 0)
    large = record(topic, b"", key=bytes(900_000))
    if part == "headers":
        large = record(topic, b"")._replace(headers=headers_of([("h", bytes(90_000))] * 10))
    log.append([large] * 120)

    sizes = [columns.size() for _, columns in log.read_ranges([(name, 0, 120)])]

    assert sum(sizes) > 120 * 900_000
    assert max(sizes) <= CHUNK_BYTES


def test_a_record_above_the_size_of_a_chunk_is_a_chunk_of_its_own(
    log: Broker, named: Named
) -> None:
    name = TopicPartition(named("large"), 0)
    log.create_topic(name.topic, settings={"max.message.bytes": str(2 * CHUNK_BYTES)})
    log.append([record(name.topic, bytes(size)) for size in (10, CHUNK_BYTES, 10, 10)])

    chunks = [columns.offsets for _, columns in log.read_ranges([(name, 0, 4)])]

    assert [1] in chunks
    assert [offset for chunk in chunks for offset in chunk] == [0, 1, 2, 3]


def test_one_of_several_ranges_that_is_gone_is_named(log: Broker, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for name in (first, second):
        log.append([record(topic, b"", partition=name.partition) for _ in range(5)])
    log.delete_records({second: 3})

    with pytest.raises(OffsetOutOfRangeError) as caught:
        offsets_of(log, [(first, 0, 5), (second, 0, 5)])

    lost = caught.value
    assert (lost.topic, lost.partition, lost.offset, lost.beginning) == (topic, 1, 0, 3)
    assert offsets_of(log, [(first, 0, 5), (second, 3, 5)]) == {
        first: [0, 1, 2, 3, 4],
        second: [3, 4],
    }


def test_several_ranges_can_be_left_early(log: Broker, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for name in (first, second):
        log.append([record(topic, b"", partition=name.partition) for _ in range(12_000)])

    ranges = log.read_ranges([(first, 0, 12_000), (second, 0, 12_000)])
    next(ranges)
    del ranges

    assert offsets_of(log, [(first, 11_999, 12_000), (second, 5, 7)]) == {
        first: [11_999],
        second: [5, 6],
    }


def test_an_unknown_partition_among_several_is_named(log: Broker, topic: str) -> None:
    with pytest.raises(UnknownTopicError, match="partition 7 in"):
        offsets_of(log, [(TopicPartition(topic, 7), 0, 1), (TopicPartition(topic, 0), 0, 1)])
