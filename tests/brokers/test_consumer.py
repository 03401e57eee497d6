"""KafkaConsumer, on the embedded log and on Kafka."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace import (
    BrokerError,
    ConfigError,
    DeserializationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    ProducerRecord,
    StreamsError,
    WakeupError,
)
from headrace.brokers import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.clients import ConsumerRecords, KafkaConsumer
from tests.brokers.consuming import Named, Opened, poll_until, take, values, write
from tests.waiting import PATIENTLY


@pytest.fixture
def topic(log: Broker, named: Named) -> str:
    name = named("logs")
    log.create_topic(name, partitions=2)
    return name


def test_an_assigned_partition_is_read_in_order(log: Broker, topic: str, opened: Opened) -> None:
    write(log, topic, "a", "b")
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])

    first = take(consumer, 2)
    write(log, topic, "c")
    second = take(consumer, 1)

    assert values(first + second) == ["a", "b", "c"]
    assert [record.offset for record in first + second] == [0, 1, 2]
    assert consumer.assignment() == {TopicPartition(topic, 0)}
    assert consumer.position(TopicPartition(topic, 0)) == 3


def test_an_empty_poll_returns_when_its_time_is_up(topic: str, opened: Opened) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])

    records = consumer.poll("10ms")

    assert len(records) == 0
    assert not records
    assert list(records) == []


def test_the_position_passes_the_marks_of_transactions(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    partition = TopicPartition(topic, 0)
    with log.transaction(named("id")) as transaction:
        transaction.append([ProducerRecord(topic, 0, 1, b"k", b"a")])
    consumer = opened(group_id=named("readers"), auto_offset_reset="earliest")
    consumer.assign([partition])
    assert values(take(consumer, 1)) == ["a"]
    end = log.end_offsets([partition])[partition]

    def position() -> int:
        return consumer.position(partition)

    poll_until(consumer, lambda: position() == end, f"the position {end}", found=position)
    consumer.commit()
    consumer.seek(partition, 0)

    assert consumer.committed([partition])[partition].offset == end
    assert consumer.position(partition) == 0
    assert values(take(consumer, 1)) == ["a"]


def test_an_end_that_a_failed_poll_reached_does_not_outlive_a_seek(
    log: Broker, topic: str, opened: Opened
) -> None:
    partition = TopicPartition(topic, 0)
    write(log, topic, "a", "b")
    consumer = opened()
    consumer.assign([partition])
    take(consumer, 2)
    session: Any = consumer._session
    ends = getattr(session, "_ends", {})  # only Kafka's session has some
    ends[partition] = 2

    consumer.seek(partition, 0)

    assert partition not in session.take_ends()
    assert consumer.position(partition) == 0


def test_no_more_records_are_returned_than_asked_for(
    log: Broker, topic: str, opened: Opened
) -> None:
    write(log, topic, *"abcdefg")
    consumer = opened(max_poll_records=3)
    consumer.assign([TopicPartition(topic, 0)])

    sizes = [len(consumer.poll(PATIENTLY)) for _ in range(2)]

    assert all(0 < size <= 3 for size in sizes)


def test_records_can_be_taken_by_partition(log: Broker, topic: str, opened: Opened) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(log, topic, "a", "b")
    write(log, topic, "c", partition=1)
    consumer = opened()
    consumer.assign([first, second])

    records = ConsumerRecords(take(consumer, 3))

    assert sorted(records.partitions()) == [first, second]
    assert values(records.records(first)) == ["a", "b"]
    assert values(records.records(second)) == ["c"]
    assert records.records(TopicPartition(topic, 7)) == []


def test_none_is_read_as_none(log: Broker, topic: str, opened: Opened) -> None:
    log.append([ProducerRecord(topic, 0, 5, None, None)])
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])

    (record,) = take(consumer, 1)

    assert (record.key, record.value, record.timestamp) == (None, None, 5)


def test_records_of_an_open_transaction_are_not_read(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])

    with log.transaction(named("id")) as transaction:
        transaction.append([ProducerRecord(topic, 0, 1, b"k", b"a")])
        during = list(consumer.poll("50ms"))
    after = take(consumer, 1)

    assert during == []
    assert values(after) == ["a"]


def test_a_record_that_does_not_fit_raises_and_can_be_skipped(
    log: Broker, topic: str, opened: Opened
) -> None:
    partition = TopicPartition(topic, 0)
    bad = ProducerRecord(topic, 0, 1, b"k", b"\xff")
    log.append(
        [ProducerRecord(topic, 0, 1, b"k", b"a"), bad, ProducerRecord(topic, 0, 1, b"", b"b")]
    )
    consumer = opened()
    consumer.assign([partition])

    first = take(consumer, 1)
    for _ in range(2):
        with pytest.raises(DeserializationError, match="Seek to 2") as caught:
            take(consumer, 1)
    position = consumer.position(partition)
    consumer.seek(partition, 2)
    second = take(consumer, 1)

    assert values(first + second) == ["a", "b"]
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 1)
    assert position == 1


def test_iteration_yields_records_until_wakeup(log: Broker, topic: str, opened: Opened) -> None:
    write(log, topic, "a", "b", "c")
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])

    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == 3:
            consumer.wakeup()

    assert found == ["a", "b", "c"]


def test_records_that_iteration_did_not_yield_are_read_next(
    log: Broker, topic: str, opened: Opened
) -> None:
    partition = TopicPartition(topic, 0)
    write(log, topic, "a", "b", "c")
    consumer = opened()
    consumer.assign([partition])

    first = next(iter(consumer))
    position = consumer.position(partition)
    rest = take(consumer, 2)

    assert first.value == "a"
    assert position == 1
    assert values(rest) == ["b", "c"]


def test_wakeup_ends_a_blocked_poll(topic: str, opened: Opened) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])
    consumer.poll(0)
    timer = threading.Timer(0.05, consumer.wakeup)
    timer.start()

    with pytest.raises(WakeupError):
        consumer.poll("1h")
    timer.join()
    assert list(consumer.poll("1ms")) == []


def test_wakeup_before_poll_ends_the_next_one(topic: str, opened: Opened) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])

    consumer.wakeup()

    with pytest.raises(WakeupError):
        consumer.poll("1h")


def test_a_consumer_without_an_offset_begins_at_auto_offset_reset(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    partition = TopicPartition(topic, 0)
    write(log, topic, "a", "b")
    positions = {}

    for policy in ("earliest", "latest"):
        consumer = opened(auto_offset_reset=policy, group_id=named("group"))
        consumer.assign([partition])
        positions[policy] = consumer.position(partition)

    strict = opened(auto_offset_reset="none", group_id=named("group"))
    strict.assign([partition])
    with pytest.raises(NoOffsetForPartitionError, match="has no offset"):
        strict.poll(0)
    strict.seek(partition, 1)
    assert values(take(strict, 1)) == ["b"]
    assert positions == {"earliest": 0, "latest": 2}


def test_a_consumer_can_seek(log: Broker, topic: str, opened: Opened) -> None:
    partition = TopicPartition(topic, 0)
    write(log, topic, "a", "b", "c")
    consumer = opened()
    consumer.assign([partition])
    consumer.seek(partition, 1)
    found = [values(take(consumer, 2))]

    consumer.seek(partition, 2)
    found.append(values(take(consumer, 1)))
    consumer.seek_to_beginning()
    found.append(values(take(consumer, 3)))
    consumer.seek_to_end([partition])
    end = consumer.position(partition)
    write(log, topic, "d")
    found.append(values(take(consumer, 1)))

    assert found == [["b", "c"], ["c"], ["a", "b", "c"], ["d"]]
    assert end == 3


def test_seeking_needs_an_assigned_partition_and_an_offset(topic: str, opened: Opened) -> None:
    consumer = opened()
    with pytest.raises(StreamsError, match="not assigned"):
        consumer.seek(TopicPartition(topic, 0), 0)
    with pytest.raises(StreamsError, match="not assigned"):
        consumer.position(TopicPartition(topic, 0))
    consumer.assign([TopicPartition(topic, 0)])

    with pytest.raises(StreamsError, match="negative"):
        consumer.seek(TopicPartition(topic, 0), -1)


def test_paused_partitions_wait(log: Broker, topic: str, opened: Opened) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = opened()
    consumer.assign([first, second])
    consumer.poll("10ms")

    consumer.pause([first])
    write(log, topic, "a", "b")
    write(log, topic, "c", partition=1)
    during = values(take(consumer, 1))
    during += values(list(consumer.poll("50ms")))
    consumer.resume([first])
    after = values(take(consumer, 2))

    assert (during, after) == (["c"], ["a", "b"])


def test_records_fetched_of_a_paused_partition_are_fetched_again(
    log: Broker, topic: str, opened: Opened
) -> None:
    partition = TopicPartition(topic, 0)
    write(log, topic, "a", "b", "c")
    consumer = opened()
    consumer.assign([partition])
    first = next(iter(consumer))

    consumer.pause([partition])
    during = list(consumer.poll("20ms"))
    consumer.resume([partition])

    assert (first.value, during) == ("a", [])
    assert values(take(consumer, 2)) == ["b", "c"]


def test_offsets_are_found_by_time(log: Broker, topic: str, opened: Opened) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    log.append([ProducerRecord(topic, 0, time_, b"k", b"v") for time_ in (10, 20, 30)])
    consumer = opened()

    found = consumer.offsets_for_times({first: 15, second: 15})

    assert found == {first: OffsetAndTimestamp(1, 20), second: None}


def test_an_offset_that_is_gone_follows_the_reset_policy(
    log: Broker, topic: str, opened: Opened
) -> None:
    partition = TopicPartition(topic, 0)
    write(log, topic, "a", "b", "c")
    log.delete_records({partition: 2})
    consumer = opened()
    consumer.assign([partition])
    consumer.seek(partition, 0)
    strict = opened(auto_offset_reset="none")
    strict.assign([partition])
    strict.seek(partition, 0)

    assert values(take(consumer, 1)) == ["c"]
    with pytest.raises(OffsetOutOfRangeError):
        take(strict, 1)


def test_a_group_resumes_at_its_committed_offset(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    partition, group = TopicPartition(topic, 0), named("group")
    write(log, topic, "a", "b", "c")
    first = opened(group_id=group, enable_auto_commit=False)
    first.assign([partition])
    take(first, 3)

    first.commit({partition: 1})
    committed = first.committed([partition, TopicPartition(topic, 1)])
    first.commit({partition: OffsetAndMetadata(2, "note")})
    first.close()
    second = opened(group_id=group, enable_auto_commit=False)
    second.assign([partition])

    assert committed == {partition: OffsetAndMetadata(1)}
    assert log.committed_offsets(group) == {partition: OffsetAndMetadata(2, "note")}
    assert values(take(second, 1)) == ["c"]


def test_commit_without_offsets_commits_the_positions(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    partition, group = TopicPartition(topic, 0), named("group")
    write(log, topic, "a", "b")
    consumer = opened(group_id=group, enable_auto_commit=False)
    consumer.assign([partition])
    take(consumer, 2)

    consumer.commit()

    assert log.committed_offsets(group) == {partition: OffsetAndMetadata(2)}


def test_asynchronous_commits_call_back_with_their_outcome(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    partition, group = TopicPartition(topic, 0), named("group")
    write(log, topic, "a", "b")
    consumer = opened(group_id=group, enable_auto_commit=False)
    consumer.assign([partition])
    take(consumer, 2)
    outcomes: list[tuple[Any, Any]] = []

    consumer.commit_async({partition: 1}, lambda *given: outcomes.append(given))
    consumer.commit_async(on_completion=lambda *given: outcomes.append(given))
    unknown = TopicPartition(topic, 99)
    consumer.commit_async({unknown: 1}, lambda *given: outcomes.append(given))
    poll_until(
        consumer, lambda: len(outcomes) == 3, "how three commits went", found=lambda: outcomes
    )

    assert outcomes[:2] == [
        ({partition: OffsetAndMetadata(1)}, None),
        ({partition: OffsetAndMetadata(2)}, None),
    ]
    assert isinstance(outcomes[2][1], BrokerError)
    assert log.committed_offsets(group) == {partition: OffsetAndMetadata(2)}


def test_close_commits_what_was_read(log: Broker, topic: str, opened: Opened, named: Named) -> None:
    partition, group = TopicPartition(topic, 0), named("group")
    write(log, topic, "a", "b", "c")
    consumer = opened(group_id=group)
    consumer.assign([partition])

    iterator = iter(consumer)
    seen = [next(iterator).value, next(iterator).value]
    consumer.close()
    consumer.close()

    assert seen == ["a", "b"]
    assert log.committed_offsets(group) == {partition: OffsetAndMetadata(2)}


def test_positions_are_committed_from_time_to_time(
    log: Broker, topic: str, opened: Opened, named: Named
) -> None:
    partition, group = TopicPartition(topic, 0), named("group")
    write(log, topic, "a")
    consumer = opened(group_id=group, auto_commit_interval="1ms")
    consumer.assign([partition])
    take(consumer, 1)

    poll_until(
        consumer,
        lambda: log.committed_offsets(group) == {partition: OffsetAndMetadata(1)},
        "a commit of offset 1",
        found=lambda: log.committed_offsets(group),
    )


def test_without_a_group_nothing_is_committed(topic: str, opened: Opened) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])

    for attempt in (
        consumer.commit,
        consumer.commit_async,
        lambda: consumer.committed([]),
        lambda: consumer.subscribe([topic]),
        consumer.group_metadata,
    ):
        with pytest.raises(StreamsError, match="group_id"):
            attempt()


def test_wrong_settings_are_reported() -> None:
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        KafkaConsumer(key=str, value=str, auto_offset_reset="newest")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Did you mean `max_poll_records`"):
        KafkaConsumer(key=str, value=str, max_poll_record=1)  # type: ignore[call-arg]


def test_a_text_is_no_list_of_topics(opened: Opened, named: Named) -> None:
    with pytest.raises(StreamsError, match=r"Write `\['logs'\]`"):
        opened(group_id=named("group")).subscribe("logs")
