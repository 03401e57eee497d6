"""KafkaConsumer in a group, on the embedded log and on Kafka."""

from __future__ import annotations

import re
import threading

import pytest

from headrace.brokers import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer
from tests.brokers.consuming import Named, Opened, poll_until, take, values, write


@pytest.fixture
def topic(log: Broker, named: Named) -> str:
    name = named("logs")
    log.create_topic(name, partitions=2)
    return name


def test_a_subscriber_alone_reads_everything(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    write(log, topic, "a", "b")
    write(log, topic, "c", partition=1)
    consumer = opened(group_id=named("group"), client_id="alone")
    consumer.subscribe([topic])

    found = take(consumer, 3)

    assert sorted(values(found)) == ["a", "b", "c"]
    assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert [member.client_id for member in log.describe_group(named("group"))] == ["alone"]


def test_a_member_reads_several_topics(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    other = named("other")
    log.create_topic(other)
    write(log, topic, "a")
    write(log, other, "b")
    consumer = opened(group_id=named("group"))
    consumer.subscribe([topic, other])

    found = take(consumer, 2)

    assert {(record.topic, record.value) for record in found} == {(topic, "a"), (other, "b")}


def test_each_group_reads_everything_and_a_new_one_starts_over(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    write(log, topic, "a", "b")
    for group in ("first", "second"):
        consumer = opened(group_id=named(group), auto_offset_reset="earliest")
        consumer.subscribe([topic])
        assert values(take(consumer, 2)) == ["a", "b"]
        consumer.commit()

    again = opened(group_id=named("third"), auto_offset_reset="earliest")
    again.subscribe([topic])

    assert values(take(again, 2)) == ["a", "b"]


def test_partitions_can_be_rewound_when_they_are_assigned(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    write(log, topic, "a", "b")
    log.commit_offsets(named("group"), {TopicPartition(topic, 0): OffsetAndMetadata(2)})
    calls = []

    def rewind(consumer: KafkaConsumer[str, str], partitions: list[TopicPartition]) -> None:
        calls.append((consumer.position(TopicPartition(topic, 0)), partitions))
        for partition in partitions:
            consumer.seek(partition, 0)

    consumer = opened(group_id=named("group"))
    consumer.subscribe([topic], on_assigned=rewind)

    assert values(take(consumer, 2)) == ["a", "b"]
    assert calls == [(2, [TopicPartition(topic, 0), TopicPartition(topic, 1)])]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_second_member_takes_over_a_part_and_gives_it_back(
    log: Broker, topic: str, opened: Opened, named: Named, strategy: str
) -> None:
    group = named("group")
    write(log, topic, "a", "b")
    settings = {"group_id": group, "partition_assignment_strategy": strategy}
    revoked: list[TopicPartition] = []
    first, second = opened(**settings), opened(**settings)
    first.subscribe([topic], on_revoked=lambda _, partitions: revoked.extend(partitions))
    take(first, 2)

    second.subscribe([topic])
    stop = threading.Event()
    thread = threading.Thread(target=_keep_polling, args=(second, stop))
    thread.start()
    try:
        poll_until(
            first,
            lambda: len(first.assignment()) == 1 == len(second.assignment()),
            "a partition for each of two members",
            found=lambda: [first.assignment(), second.assignment()],
        )
        shared = first.assignment() | second.assignment()
        committed = log.committed_offsets(group)
    finally:
        stop.set()
        thread.join()
    second.close()
    poll_until(
        first,
        lambda: len(first.assignment()) == 2,
        "both partitions for the member that is left",
        found=first.assignment,
    )

    assert len(shared) == 2
    assert revoked
    assert committed.get(TopicPartition(topic, 0), OffsetAndMetadata(2)) == OffsetAndMetadata(2)


def test_a_pattern_finds_topics_that_are_made_later(
    log: Broker, opened: Opened, named: Named
) -> None:
    consumer = opened(group_id=named("group"), metadata_max_age="200ms")
    consumer.subscribe(re.compile(named("shop") + r"-\w+"))
    consumer.poll("10ms")

    log.create_topic(named("shop") + "-orders")
    log.create_topic("other-" + named("shop") + "-orders")
    write(log, named("shop") + "-orders", "a")

    assert values(take(consumer, 1)) == ["a"]
    assert consumer.assignment() == {TopicPartition(named("shop") + "-orders", 0)}


def test_poll_raises_the_error_of_a_user_function(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    consumer = opened(group_id=named("group"))
    consumer.subscribe([topic], on_assigned=fail)

    with pytest.raises(ZeroDivisionError):
        take(consumer, 1)


def test_close_raises_the_error_of_a_user_function(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    write(log, topic, "a")
    consumer = opened(group_id=named("group"))
    consumer.subscribe([topic], on_revoked=fail)
    take(consumer, 1)

    with pytest.raises(ZeroDivisionError):
        consumer.close()
    assert list(log.describe_group(named("group"))) == []


def test_assign_after_subscribe_leaves_the_group(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    write(log, topic, "a")
    consumer = opened(group_id=named("group"), enable_auto_commit=False)
    consumer.subscribe([topic])
    take(consumer, 1)

    consumer.assign([TopicPartition(topic, 0)])
    again = take(consumer, 1)

    assert values(again) == ["a"]
    assert consumer.assignment() == {TopicPartition(topic, 0)}
    consumer.assign([])
    assert list(consumer.poll("10ms")) == []


def _keep_polling(consumer: KafkaConsumer[str, str], stop: threading.Event) -> None:
    while not stop.is_set():
        consumer.poll("20ms")
