"""A follower reads the committed records of partitions as they are added."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.brokers.sessions import Broker, Follower
from tests.brokers.consuming import Named
from tests.kafka_broker import RunningBroker
from tests.unique_names import unique
from tests.waiting import await_that


class Seen:
    """Everything that a follower has returned."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        self.ends: dict[TopicPartition, int] = {}

    def poll(self) -> None:
        for name, columns, end in self.follower.poll(0.1):
            if columns is not None:
                assert columns.offsets == sorted(columns.offsets)
                self.values.setdefault(name, []).extend(columns.values)
                self.ends.pop(name, None)
            if end is not None:
                self.ends[name] = end

    def await_values(self, name: TopicPartition, *values: bytes) -> None:
        """Wait for exactly these values, and then for the end of the partition."""

        def has_ended() -> bool:
            self.poll()
            return len(self.values.get(name, ())) >= len(values) and name in self.ends

        await_that(has_ended, f"{values} and the end", found=lambda: (self.values, self.ends))
        assert self.values.pop(name, []) == [*values]


@pytest.fixture
def seen(log: Broker) -> Iterator[Seen]:
    follower = log.open_follower()
    yield Seen(follower)
    follower.close()


def append(log: Broker, name: TopicPartition, *values: bytes) -> None:
    log.append([(*name, 1, b"k", value, None) for value in values])


def test_records_come_as_they_are_added_to_each_partition(
    log: Broker, topic: str, seen: Seen
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    append(log, first, b"a", b"b")
    seen.follower.follow(first, 1)
    seen.follower.follow(second, 0)

    seen.await_values(first, b"b")
    assert seen.ends[first] == 2
    seen.await_values(second)
    append(log, second, b"c")
    seen.await_values(second, b"c")
    append(log, first, b"d")
    seen.await_values(first, b"d")
    assert seen.values == {}


def test_records_of_a_transaction_come_when_it_has_committed(
    log: Broker, topic: str, seen: Seen, named: Named
) -> None:
    name = TopicPartition(topic, 0)
    seen.follower.follow(name, 0)
    seen.await_values(name)

    with suppress(ZeroDivisionError), log.transaction(named("writer")) as transaction:
        transaction.append([(*name, 1, b"k", b"aborted", None)])
        raise ZeroDivisionError
    with log.transaction(named("writer")) as transaction:
        transaction.append([(*name, 1, b"k", b"committed", None)])
        for _ in range(3):
            seen.poll()
        assert seen.values == {}

    seen.await_values(name, b"committed")


def test_a_partition_that_is_followed_again_comes_from_the_new_offset(
    log: Broker, topic: str, seen: Seen
) -> None:
    name = TopicPartition(topic, 0)
    append(log, name, *(b"%d" % number for number in range(5)))
    seen.follower.follow(name, 3)
    seen.await_values(name, b"3", b"4")

    seen.follower.follow(name, 2)
    seen.ends.clear()
    seen.await_values(name, b"2", b"3", b"4")
    seen.follower.leave(name)
    append(log, name, b"5")
    for _ in range(3):
        seen.poll()
    assert seen.values == {}
    # It may be left twice.
    seen.follower.leave(name)


def test_records_from_the_first_that_is_left_come_if_earlier_ones_were_deleted(
    log: Broker, topic: str, seen: Seen
) -> None:
    name = TopicPartition(topic, 0)
    append(log, name, b"a", b"b", b"c")
    log.delete_records({name: 2})

    seen.follower.follow(name, 0)

    seen.await_values(name, b"c")


def test_a_partition_that_ends_before_the_offset_reports_that_end(
    log: Broker, topic: str, seen: Seen
) -> None:
    name = TopicPartition(topic, 0)
    append(log, name, b"a")

    seen.follower.follow(name, 7)

    seen.await_values(name)
    assert seen.ends == {name: 1}


def test_a_partition_of_which_the_client_fetches_nothing_is_read_again(
    kafka: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.brokers.kafka.following._CHECK_SECONDS", 0.3)
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address))
    name, other = (TopicPartition(unique("silent"), number) for number in (0, 0))
    for each in (name, other):
        log.create_topic(each.topic)
    follower: Any = log.open_follower()
    seen = Seen(follower)
    for each in (name, other):
        seen.follower.follow(each, 0)
        seen.await_values(each)
    # As the client does by mistake after some losses of brokers.
    follower._consumer.pause([ClientPartition(*name)])

    append(log, name, b"a", b"b")
    append(log, other, b"c")

    seen.await_values(other, b"c")
    seen.await_values(name, b"a", b"b")
    append(log, name, b"d")
    seen.await_values(name, b"d")
    follower.close()
    log.close()


def test_a_client_stays_while_its_partitions_end_in_open_or_aborted_transactions(
    kafka: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.brokers.kafka.following._CHECK_SECONDS", 0.05)
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address))
    topic = unique("transactions")
    log.create_topic(topic, partitions=2)
    aborted, pending = (TopicPartition(topic, number) for number in (0, 1))
    follower: Any = log.open_follower()
    seen = Seen(follower)
    for each in (aborted, pending):
        seen.follower.follow(each, 0)
        seen.await_values(each)
    client = follower._consumer

    with suppress(ZeroDivisionError), log.transaction(unique("writer")) as transaction:
        transaction.append([(*aborted, 1, b"k", b"never", None)])
        raise ZeroDivisionError
    with log.transaction(unique("writer")) as transaction:
        transaction.append([(*pending, 1, b"k", b"soon", None)])
        for _ in range(30):
            seen.poll()
    seen.await_values(pending, b"soon")
    for _ in range(30):
        seen.poll()

    assert follower._consumer is client
    follower.close()
    log.close()


def test_a_topic_that_does_not_exist_is_silent(log: Broker, named: Named, seen: Seen) -> None:
    seen.follower.follow(TopicPartition(named("none"), 0), 0)

    for _ in range(5):
        seen.poll()

    assert (seen.values, seen.ends) == ({}, {})


def test_a_topic_that_is_missing_for_a_while_is_read_when_it_is_there(
    log: Broker, named: Named, seen: Seen
) -> None:
    name = TopicPartition(named("later"), 0)
    seen.follower.follow(name, 0)
    for _ in range(20):
        seen.poll()

    log.create_topic(name.topic)
    append(log, name, b"a")

    seen.await_values(name, b"a")
