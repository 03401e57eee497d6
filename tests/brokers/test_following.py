"""A follower reads the committed records of partitions as they are added."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.brokers.log import TopicPartition
from headrace.brokers.sessions import Broker, Follower
from tests.brokers.consuming import Named
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
