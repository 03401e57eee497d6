"""Records and offsets of a transaction appear together or not at all, on both logs."""

from __future__ import annotations

import time

import pytest

from headrace import (
    ProducerFencedError,
    RecordRefusedError,
    StreamsConfig,
    UnknownTopicError,
)
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.log import producer_record
from headrace.brokers.sessions import Broker
from headrace.errors import StreamsError
from headrace.records import RecordMetadata
from tests.brokers.appending import assert_holds, record, values
from tests.brokers.consuming import Named, Settings


def test_a_transaction_writes_records_and_offsets_together(
    log: Broker, topic: str, named: Named
) -> None:
    group, partition = named("group"), TopicPartition(topic, 0)

    with log.transaction(named("writer")) as transaction:
        transaction.append([record(topic, b"a"), record(topic, b"b", partition=1)])
        transaction.append([record(topic, b"c")])
        transaction.commit_offsets(group, {partition: OffsetAndMetadata(7, "batch")})

    assert_holds(log, partition, [b"a", b"c"])
    assert_holds(log, TopicPartition(topic, 1), [b"b"])
    assert log.committed_offsets(group, [partition]) == {partition: OffsetAndMetadata(7, "batch")}


def test_a_transaction_that_fails_leaves_nothing(log: Broker, topic: str, named: Named) -> None:
    group, partition = named("group"), TopicPartition(topic, 0)
    log.append([record(topic, b"before")])

    def fail() -> None:
        with log.transaction(named("writer")) as transaction:
            transaction.append([record(topic, b"a")])
            transaction.commit_offsets(group, {partition: OffsetAndMetadata(7)})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    log.append([record(topic, b"after")])

    assert_holds(log, partition, [b"before", b"after"])
    assert log.committed_offsets(group) == {}


def test_an_open_transaction_is_invisible(log: Broker, topic: str, named: Named) -> None:
    group, partition = named("group"), TopicPartition(topic, 0)

    with log.transaction(named("writer")) as transaction:
        transaction.append([record(topic, b"a")])
        transaction.commit_offsets(group, {partition: OffsetAndMetadata(7)})
        during = log.end_offsets([partition])[partition], log.committed_offsets(group)

    assert during == (0, {})
    assert_holds(log, partition, [b"a"])


def test_each_record_has_its_outcome_before_an_abort_returns(
    log: Broker, topic: str, named: Named
) -> None:
    session = log.open_producer({"transactional.id": named("writer")})
    reports: list[RecordMetadata | StreamsError | None] = []

    def slowly(where: RecordMetadata | None, failure: StreamsError | None) -> None:
        time.sleep(0.01)
        reports.append(where or failure)

    session.begin_transaction()
    for number in range(20):
        session.send(producer_record(record(topic, b"%d" % number)), slowly)
    session.abort_transaction()

    assert len(reports) == 20
    session.close()


def test_an_empty_transaction_writes_nothing(log: Broker, topic: str, named: Named) -> None:
    with log.transaction(named("writer")):
        pass

    assert log.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}


def test_a_transaction_of_offsets_alone_commits_them(log: Broker, topic: str, named: Named) -> None:
    partition = TopicPartition(topic, 0)

    with log.transaction(named("writer")) as transaction:
        transaction.commit_offsets(named("group"), {partition: OffsetAndMetadata(2)})

    committed = log.committed_offsets(named("group"), [partition])
    assert committed == {partition: OffsetAndMetadata(2)}


def test_a_transactional_id_writes_one_transaction_after_the_other(
    log: Broker, topic: str, named: Named
) -> None:
    for value in (b"a", b"b", b"c"):
        with log.transaction(named("writer")) as transaction:
            transaction.append([record(topic, value)])

    assert_holds(log, TopicPartition(topic, 0), [b"a", b"b", b"c"])


def test_a_later_transaction_fences_an_earlier_one(log: Broker, topic: str, named: Named) -> None:
    def succeed_while_open() -> None:
        with log.transaction(named("writer")) as zombie:
            zombie.append([record(topic, b"zombie")])
            with log.transaction(named("writer")) as successor:
                successor.append([record(topic, b"good")])

    with pytest.raises(ProducerFencedError, match="writer"):
        succeed_while_open()

    assert_holds(log, TopicPartition(topic, 0), [b"good"])


def test_transactions_that_hang_can_be_ended(
    log: Broker, broker_settings: Settings, topic: str, named: Named
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ids = [named(f"writer-{number}") for number in range(10)]
    other = open_log(StreamsConfig(**broker_settings))

    def hang() -> None:
        with other.transaction(ids[0]) as one, other.transaction(ids[9]) as two:
            one.append([record(topic, b"zombie")])
            two.append([record(topic, b"zombie", partition=1)])
            log.append([record(topic, b"a"), record(topic, b"b", partition=1)])
            log.fence_producers([*ids, ids[0]])
            # Nothing hides what was written behind an open transaction.
            assert_holds(log, first, [b"a"])
            assert_holds(log, second, [b"b"])

    with pytest.raises(ProducerFencedError, match="writer-9"):
        hang()

    log.fence_producers([])
    with log.transaction(ids[0]) as successor:
        successor.append([record(topic, b"successor")])
    assert_holds(log, first, [b"a", b"successor"])
    other.close()


def test_other_transactional_ids_are_not_fenced(log: Broker, topic: str, named: Named) -> None:
    with log.transaction(named("one")) as one:
        one.append([record(topic, b"one")])
        with log.transaction(named("two")) as two:
            two.append([record(topic, b"two", partition=1)])

    assert_holds(log, TopicPartition(topic, 0), [b"one"])
    assert_holds(log, TopicPartition(topic, 1), [b"two"])


def test_a_refused_record_takes_its_whole_transaction_with_it(
    log: Broker, topic: str, named: Named
) -> None:
    small = named("small")
    log.create_topic(small, settings={"max.message.bytes": "1000"})
    large = record(small, b"x" * 2_000, timestamp=77)

    with (
        pytest.raises(RecordRefusedError) as caught,
        log.transaction(named("writer")) as transaction,
    ):
        transaction.append([record(topic, b"a"), large])
    with log.transaction(named("writer")) as transaction:
        transaction.append([record(topic, b"again")])

    assert caught.value.record == large
    assert_holds(log, TopicPartition(topic, 0), [b"again"])


def test_a_marker_for_a_partition_that_does_not_exist_fails_the_transaction(
    log: Broker, topic: str, named: Named
) -> None:
    def mark() -> None:
        with log.transaction(named("writer")) as transaction:
            transaction.append([record(topic, b"a")])
            unknown = TopicPartition(topic, 9)
            transaction.commit_offsets(named("group"), {unknown: OffsetAndMetadata(1)})

    with pytest.raises(UnknownTopicError, match="partition 9"):
        mark()

    log.append([record(topic, b"after")])
    assert_holds(log, TopicPartition(topic, 0), [b"after"])


def test_a_range_that_ends_in_a_hole_is_read_to_its_end(
    log: Broker, topic: str, named: Named
) -> None:
    """Kafka writes a marker at the end of each transaction, so the last offset holds no record."""
    partition = TopicPartition(topic, 0)
    for value in (b"a", b"b"):
        with log.transaction(named("writer")) as transaction:
            transaction.append([record(topic, value)])

    assert_holds(log, partition, [b"a", b"b"])
    end = log.end_offsets([partition])[partition]
    assert values(log, partition, 0, end) == [b"a", b"b"]
    assert values(log, partition, end, end) == []
