"""KafkaProducer, on the embedded log and on Kafka."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from headrace import (
    ConfigError,
    ProducerFencedError,
    RecordMetadata,
    RecordRefusedError,
    SerializationError,
    StreamsError,
)
from headrace.brokers import TopicPartition
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer, KafkaHandler, KafkaProducer
from headrace.records import Headers
from headrace.serdes.partitioner import partition_for_key
from tests.waiting import PATIENCE, PATIENTLY, await_that

Named = Callable[[str], str]
Settings = dict[str, Any]


@pytest.fixture
def topic(log: Broker, named: Named) -> str:
    name = named("logs")
    log.create_topic(name, partitions=3)
    return name


def read(settings: Settings, topic: str, partitions: int, count: int) -> list[tuple[Any, Any]]:
    """Return the keys and values of a topic once it has ``count`` records."""
    with KafkaConsumer(key=str, value=str, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        found: list[tuple[Any, Any]] = []

        def is_enough() -> bool:
            found.extend((record.key, record.value) for record in consumer.poll("100ms"))
            return len(found) >= count

        await_that(is_enough, f"{count} records in {topic!r}", found=lambda: found)
        return found + [(record.key, record.value) for record in consumer.poll("50ms")]


def test_a_sent_record_is_found_where_its_future_says(
    broker_settings: Settings, log: Broker, topic: str
) -> None:
    with KafkaProducer(key=str, value=int, **broker_settings) as producer:
        first = producer.send(topic, "k", 7, partition=1, timestamp=123, headers=[("h", b"x")])
        second = producer.send(topic, "k", 8, partition=1).result(PATIENCE)

    assert first.result() == RecordMetadata(topic, 1, 0)
    assert second.offset == 1
    ((written, _),) = log.read(TopicPartition(topic, 1), 0, 2)
    assert (written.key, written.value) == (b"k", (7).to_bytes(8, "big"))
    assert (written.timestamp, written.headers) == (123, Headers([("h", b"x")]))


def test_two_producers_write_to_one_partition_and_each_keeps_its_order(
    broker_settings: Settings, topic: str
) -> None:
    with (
        KafkaProducer(key=str, value=str, **broker_settings) as one,
        KafkaProducer(key=str, value=str, **broker_settings) as other,
    ):
        for number in range(20):
            one.send(topic, "one", str(number), partition=0)
            other.send(topic, "other", str(number), partition=0)

    found = read(broker_settings, topic, 1, 40)
    for name in ("one", "other"):
        assert [value for key, value in found if key == name] == [str(n) for n in range(20)]


def test_a_key_goes_to_the_partition_that_java_would_choose(
    broker_settings: Settings, topic: str
) -> None:
    keys = [f"key-{number}" for number in range(20)]

    with KafkaProducer(key=str, value=str, **broker_settings) as producer:
        sent = [producer.send(topic, key, "v") for key in keys]

    chosen = [each.result().partition for each in sent]
    assert chosen == [partition_for_key(key.encode(), 3) for key in keys]
    assert set(chosen) == {0, 1, 2}


def test_a_partitioner_of_the_user_may_decide(broker_settings: Settings, topic: str) -> None:
    def by_length(name: str, key: str, value: str | None, partitions: int) -> int | None:
        assert (name, partitions) == (topic, 3)
        return len(key) % partitions if value else None

    with KafkaProducer(key=str, value=str, partitioner=by_length, **broker_settings) as producer:
        decided = producer.send(topic, "1234", "v").result(PATIENCE)
        left = producer.send(topic, "1234", None).result(PATIENCE)

    assert decided.partition == 1
    assert left.partition == partition_for_key(b"1234", 3)


def test_round_robin_gives_each_partition_its_turn_whatever_the_key(
    broker_settings: Settings, topic: str
) -> None:
    named = "headrace.clients:RoundRobinPartitioner"

    with KafkaProducer(key=str, value=str, partitioner=named, **broker_settings) as producer:
        sent = [producer.send(topic, "one key", "v") for _ in range(7)]

    assert [future.result().partition for future in sent] == [0, 1, 2, 0, 1, 2, 0]


def test_records_without_a_key_stay_together_until_a_batch_is_full(
    broker_settings: Settings, topic: str
) -> None:
    with KafkaProducer(
        key=str, value=str, batch_size=40, linger="1m", **broker_settings
    ) as producer:
        sent = [producer.send(topic, None, "x" * 20) for _ in range(12)]

    chosen = [future.result().partition for future in sent]
    pairs = list(zip(chosen[::2], chosen[1::2], strict=True))
    assert all(first == second for first, second in pairs)
    assert all(one != other for one, other in pairwise(pairs))


def test_records_without_a_key_reach_every_partition_if_they_are_sent_one_by_one(
    broker_settings: Settings, log: Broker, named: Named
) -> None:
    topic = named("events")
    log.create_topic(topic, partitions=2)

    with KafkaProducer(key=str, value=str, **broker_settings) as producer:
        sent = [producer.send(topic, None, f"event {number}") for number in range(60)]

    assert Counter(future.result().partition for future in sent) == {0: 30, 1: 30}


def test_producers_do_not_all_begin_with_the_same_partition(
    broker_settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = []
    for number in range(3):
        monkeypatch.setattr(
            "headrace.clients.partitioning.randbelow", lambda _, first=number: first
        )
        with KafkaProducer(key=str, value=str, **broker_settings) as producer:
            chosen.append(producer.send(topic, None, "event").result(PATIENCE).partition)

    assert chosen == [0, 1, 2]


def test_a_batch_size_of_zero_sends_each_record_alone(
    broker_settings: Settings, topic: str
) -> None:
    with KafkaProducer(
        key=str, value=str, batch_size=0, linger="1s", **broker_settings
    ) as producer:
        sent = [producer.send(topic, None, "event") for _ in range(9)]

    chosen = [future.result().partition for future in sent]
    assert all(one != other for one, other in pairwise(chosen))


def test_a_function_is_called_with_what_became_of_a_record(
    broker_settings: Settings, log: Broker, named: Named
) -> None:
    topic = named("small")
    log.create_topic(topic, settings={"max.message.bytes": "1000"})
    reports: list[tuple[Any, Any]] = []

    with KafkaProducer(key=str, value=str, **broker_settings) as producer:
        good = producer.send(topic, "k", "v", on_completion=lambda *report: reports.append(report))
        good.result(PATIENCE)
        bad = producer.send(
            topic, "k", "x" * 5_000, on_completion=lambda *report: reports.append(report)
        )
        error = bad.exception(PATIENCE)

    assert reports == [(RecordMetadata(topic, 0, 0), None), (None, error)]
    assert isinstance(error, RecordRefusedError)


def test_one_refused_record_does_not_hold_back_the_others(
    broker_settings: Settings, log: Broker, named: Named
) -> None:
    topic = named("small")
    log.create_topic(topic, settings={"max.message.bytes": "1000"})

    with KafkaProducer(key=str, value=str, linger="20ms", **broker_settings) as producer:
        sent = [producer.send(topic, "k", value) for value in ("a", "x" * 5_000, "b")]
        producer.flush(PATIENTLY)

    assert [each.exception() is None for each in sent].count(False) >= 1
    assert isinstance(sent[1].exception(), RecordRefusedError)


def test_a_failing_function_is_logged_and_the_record_is_written(
    broker_settings: Settings, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with KafkaProducer(key=str, value=str, **broker_settings) as producer:
        metadata = producer.send(topic, "k", "v", partition=0, on_completion=fail).result(PATIENCE)

    assert metadata.offset == 0
    assert "on_completion" in caplog.text


def test_an_unknown_topic_is_made_with_one_partition(
    broker_settings: Settings, log: Broker, named: Named
) -> None:
    with KafkaProducer(key=str, value=str, **broker_settings) as producer:
        metadata = producer.send(named("new"), "k", "v").result(PATIENCE)

    assert metadata == RecordMetadata(named("new"), 0, 0)
    assert log.partition_count(named("new")) == 1


def test_linger_gathers_records_until_they_are_flushed(
    broker_settings: Settings, log: Broker, topic: str
) -> None:
    with KafkaProducer(
        key=str, value=str, linger="1m", batch_size=1 << 20, **broker_settings
    ) as producer:
        sent = [producer.send(topic, "k", "v", partition=0) for _ in range(3)]
        waiting = log.end_offsets([TopicPartition(topic, 0)])
        producer.flush(PATIENTLY)

        assert waiting == {TopicPartition(topic, 0): 0}
        assert [each.result(0).offset for each in sent] == [0, 1, 2]


def test_a_value_that_does_not_fit_the_serde_is_refused_at_once(
    broker_settings: Settings, topic: str
) -> None:
    with KafkaProducer(key=str, value=int, **broker_settings) as producer:
        wrong: Any = "seven"
        with pytest.raises(SerializationError, match="value of a record for topic"):
            producer.send(topic, "k", wrong)
        with pytest.raises(SerializationError, match="key of a record"):
            producer.send(topic, 3, 3)  # type: ignore[arg-type]


def test_a_transaction_appears_whole(broker_settings: Settings, topic: str, named: Named) -> None:
    settings = {"transactional_id": named("id"), **broker_settings}

    with KafkaProducer(key=str, value=str, **settings) as producer:
        for round_ in ("a", "b"):
            with producer.transaction():
                sent = [producer.send(topic, "k", f"{round_}{n}", partition=0) for n in range(3)]

    assert all(each.done() for each in sent)
    assert read(broker_settings, topic, 3, 6) == [("k", f"{r}{n}") for r in "ab" for n in range(3)]


def test_a_transaction_that_fails_leaves_nothing(
    broker_settings: Settings, topic: str, named: Named
) -> None:
    settings = {"transactional_id": named("id"), **broker_settings}

    def fail_after_sending(producer: KafkaProducer[str, str]) -> None:
        with producer.transaction():
            producer.send(topic, "k", "never", partition=0)
            producer.flush(PATIENTLY)  # so that the broker has it, and must hide it
            raise ZeroDivisionError

    with KafkaProducer(key=str, value=str, **settings) as producer:
        with pytest.raises(ZeroDivisionError):
            fail_after_sending(producer)
        with producer.transaction():
            producer.send(topic, "k", "good", partition=0)

    assert read(broker_settings, topic, 3, 1) == [("k", "good")]


def test_a_new_producer_fences_the_old_one(
    broker_settings: Settings, topic: str, named: Named
) -> None:
    settings = {"transactional_id": named("id"), **broker_settings}

    sent = []

    def send(producer: KafkaProducer[str, str], value: str) -> None:
        with producer.transaction():
            sent.append(producer.send(topic, "k", value, partition=0))

    with KafkaProducer(key=str, value=str, **settings) as old:
        send(old, "a")
        with KafkaProducer(key=str, value=str, **settings) as new:
            send(new, "b")
            with pytest.raises(ProducerFencedError):
                send(old, "zombie")
            send(new, "c")

    assert read(broker_settings, topic, 3, 3) == [("k", "a"), ("k", "b"), ("k", "c")]
    assert [each.exception(PATIENCE) is None for each in sent] == [True, True, False, True]


def test_offsets_are_committed_with_a_transaction(
    broker_settings: Settings, log: Broker, topic: str, named: Named
) -> None:
    source, group = TopicPartition(topic, 1), named("group")
    reading: Settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with KafkaProducer(key=str, value=str, **broker_settings) as producer:
        for number in range(4):
            producer.send(topic, "k", str(number), partition=1)
    transactional = {"transactional_id": named("id"), **broker_settings}

    with (
        KafkaConsumer(key=str, value=str, group_id=group, **reading, **broker_settings) as consumer,
        KafkaProducer(key=str, value=str, **transactional) as producer,
    ):
        consumer.assign([source])
        records = list(consumer.poll(PATIENTLY))
        with producer.transaction():
            for record in records:
                producer.send(topic, record.key, record.value * 2, partition=2)
            producer.send_offsets_to_transaction({source: records[-1].offset + 1}, consumer)
        with pytest.raises(StreamsError, match="none is open"):
            producer.send_offsets_to_transaction({source: 0}, consumer)

    assert log.committed_offsets(group, [source])[source].offset == records[-1].offset + 1
    assert len(records) > 0


def test_transactions_need_an_id_and_sending_needs_a_transaction(
    broker_settings: Settings, topic: str, named: Named
) -> None:
    with (
        KafkaProducer(key=str, value=str, **broker_settings) as producer,
        pytest.raises(StreamsError, match="transactional_id"),
        producer.transaction(),
    ):
        pass
    settings = {"transactional_id": named("id"), **broker_settings}
    with (
        KafkaProducer(key=str, value=str, **settings) as producer,
        pytest.raises(StreamsError, match="not in a transaction"),
    ):
        producer.send(topic, "k", "v")


def test_all_wrong_settings_are_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaProducer(key=str, value=str, lingers="5ms", zzz=1, max_poll_records=1)  # type: ignore[call-arg]

    assert "Did you mean `linger`?" in str(caught.value)
    assert len(caught.value.problems) == 3


def test_log_records_go_to_a_topic(broker_settings: Settings, log: Broker, named: Named) -> None:
    topic = named("app-logs")
    log.create_topic(topic)
    handler = KafkaHandler(topic, level="WARNING", **broker_settings)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger(named("shop"))
    logger.addHandler(handler)

    logger.warning("sold %d", 3)
    logger.info("not written")
    logging.getLogger("headrace.brokers").warning("ours is not written")
    handler.flush()
    logger.removeHandler(handler)
    handler.close()

    assert read(broker_settings, topic, 1, 1) == [(logger.name, "WARNING sold 3")]
