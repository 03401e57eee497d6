"""Settings of clients: keywords, a mapping of Kafka's names, or the config of an application."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace import ConfigError, StreamsConfig, StreamsError, UnknownTopicError
from headrace.brokers import open_log
from headrace.clients import (
    ConsumerRecords,
    KafkaConsumer,
    KafkaProducer,
    RoundRobinPartitioner,
    TopicPartition,
)
from tests.waiting import PATIENCE


def by_value(_topic: str, _key: str, value: str, partitions: int) -> int:
    return int(value) % partitions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "topics.db"
    with KafkaProducer({"embedded.path": file}, key=str, value=str) as producer:
        for number in range(7):
            producer.send("logs", "k", str(number))
    return file


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    file = tmp_path / "topics.db"
    with closing(open_log(StreamsConfig(embedded_path=file))) as log:
        log.create_topic("wide", partitions=3)
    return file


def consumer_of(settings: Any, **keywords: Any) -> KafkaConsumer[str, str]:
    return KafkaConsumer(settings, key=str, value=str, **keywords)


def test_a_consumer_takes_the_names_of_a_java_program(path: Path) -> None:
    properties = {
        "embedded.path": path,
        "group.id": "simple-logs-processing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "max.poll.records": "5",
    }

    with consumer_of(properties) as consumer:
        consumer.subscribe(["logs"])
        records = consumer.poll("10s")
        consumer.commit()
        committed = consumer.committed([TopicPartition("logs", 0)])

    assert [record.value for record in records] == ["0", "1", "2", "3", "4"]
    assert committed[TopicPartition("logs", 0)].offset == 5


def test_a_consumer_takes_the_config_of_an_application(path: Path) -> None:
    config = StreamsConfig(
        application_id="app", embedded_path=path, consumer={"auto.offset.reset": "earliest"}
    )

    with consumer_of(config, max_poll_records=3) as consumer:
        consumer.assign([TopicPartition("logs", 0)])
        records = consumer.poll("10s")

    assert [record.offset for record in records] == [0, 1, 2]


def test_keywords_win_over_the_mapping(path: Path) -> None:
    properties = {"embedded.path": path, "auto.offset.reset": "latest", "group.id": "theirs"}

    with consumer_of(properties, auto_offset_reset="earliest", group_id="ours") as consumer:
        consumer.assign([TopicPartition("logs", 0)])
        found = len(consumer.poll("10s"))
        consumer.commit()
        committed = consumer.committed([TopicPartition("logs", 0)])

    with consumer_of(properties) as theirs:
        assert theirs.committed([TopicPartition("logs", 0)]) == {}
    assert (found, committed[TopicPartition("logs", 0)].offset) == (7, 7)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"max.poll.record": 5}, "not a setting of this client. Did you mean `max.poll.records`?"),
        ({"linger.ms": 5}, "`linger.ms` is not a setting of this client."),
        ({"key.deserializer": "StringDeserializer"}, "is the keyword `key=` here. Remove it."),
        ({"auto.offset.reset": "by_duration:PT1H"}, 'Use "earliest", "latest" or "none".'),
        (7, "The config is of type int."),
    ],
)
def test_a_setting_that_a_consumer_cannot_use_is_refused(properties: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("?", r"\?")):
        consumer_of(properties)


@pytest.mark.parametrize("partitioner", [by_value, f"{__name__}:by_value"])
@pytest.mark.parametrize("setting", ["partitioner", "partitioner.class"])
def test_a_producer_takes_a_partitioner_itself_or_by_name(
    wide: Path, setting: str, partitioner: Any
) -> None:
    keywords: Any = {setting: partitioner} if setting == "partitioner" else {}
    mapping = {"embedded.path": wide} | ({} if keywords else {setting: partitioner})

    with KafkaProducer(mapping, key=str, value=str, **keywords) as producer:
        sent = [producer.send("wide", "k", value) for value in ("4", "2", "0")]

    assert [future.result().partition for future in sent] == [1, 2, 0]


def test_the_partitioner_of_an_application_is_followed(wide: Path) -> None:
    java = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    config = StreamsConfig(embedded_path=wide, producer={"partitioner.class": java})

    with KafkaProducer(config, key=str, value=str) as producer:
        sent = [producer.send("wide", "k", "v") for _ in range(4)]

    assert [future.result().partition for future in sent] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("partitioner", "problem"),
    [
        ("no.such.module:name", "`partitioner` is 'no.such.module:name', which cannot be imported"),
        ("sticky", "`partitioner` is 'sticky', which cannot be called. Use a function"),
    ],
)
def test_a_partitioner_that_is_none_is_refused(
    tmp_path: Path, partitioner: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        KafkaProducer(
            key=str, value=str, partitioner=partitioner, embedded_path=tmp_path / "topics.db"
        )


def test_round_robin_counts_for_each_topic() -> None:
    turns = RoundRobinPartitioner()

    chosen = [turns(topic, None, None, 2) for topic in ("a", "b", "a", "a", "b")]

    assert chosen == [0, 0, 1, 0, 1]


def test_a_consumer_asks_for_partitions_and_their_offsets(path: Path) -> None:
    with consumer_of({"embedded.path": path}) as consumer:
        (partition,) = consumer.partitions_for("logs")

        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 7}
        with pytest.raises(UnknownTopicError, match="log"):
            consumer.partitions_for("log")


def test_records_of_a_poll_are_a_sequence(path: Path) -> None:
    with consumer_of({"embedded.path": path, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(consumer.partitions_for("logs"))
        records = consumer.poll("10s")

    assert records[-1].value == "6"
    assert records[0] in records
    tail = records[5:]
    assert isinstance(tail, ConsumerRecords)
    assert [record.offset for record in tail.records(TopicPartition("logs", 0))] == [5, 6]


def test_a_second_thread_is_refused_by_name(path: Path) -> None:
    inside = threading.Event()
    problems: list[str] = []

    def second() -> None:
        for call in (lambda: consumer.poll(), lambda: next(iter(consumer))):
            with pytest.raises(StreamsError) as caught:
                call()
            problems.append(str(caught.value))

    def on_assigned(*_: object) -> None:
        thread = threading.Thread(target=second, name="second")
        thread.start()
        thread.join(PATIENCE)
        inside.set()

    with consumer_of(
        {"embedded.path": path}, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["logs"], on_assigned=on_assigned)
        consumer.poll("10s")
        assert inside.is_set()
        here = threading.current_thread().name

    assert problems[0] == (
        f"Thread 'second' calls `poll` while thread '{here}' is inside `poll`. "
        "Give each thread a consumer of its own; only `wakeup` may come from another."
    )
    assert problems[1].startswith("Thread 'second' calls `for … in consumer` while thread ")
