"""Records above `max.record.bytes`: the application decides about them, whatever the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from headrace import StreamsBuilder
from headrace.brokers import TopicPartition
from headrace.brokers.sessions import Broker
from headrace.records import ConsumerRecord
from tests.brokers.appending import assert_holds, record, values
from tests.brokers.consuming import Named
from tests.kafka_broker import RunningBroker
from tests.runtime.in_process import InProcessQuery

LIMIT = 1_000_000
EXPANDED = 150 << 20
"""Above ``receive.message.max.bytes``, which bounds what the client decompresses of zstd."""


def records_of(log: Broker, topic: str) -> list[ConsumerRecord]:
    """Return the records of the first partition of a topic."""
    name = TopicPartition(topic, 0)
    return [each for some in log.read(name, 0, log.end_offsets([name])[name]) for each in some]


def query_of(topic: str, folder: Path, settings: dict[str, Any]) -> InProcessQuery:
    """Return an application that counts the records of a topic, and skips unreadable ones."""
    builder = StreamsBuilder()
    (
        builder.stream(topic, key=str, value=bytes, name="source")
        .group_by_key()
        .count(materialized="counts")
        .to_stream()
        .map_values(lambda count: b"%d" % count, value=bytes)
        .to(f"{topic}-out")
    )
    return InProcessQuery(
        builder.build(),
        folder,
        application_id=topic,
        max_record_bytes=LIMIT,
        deserialization_exception_handler="continue",
        errors_dead_letter_queue_topic_name=f"{topic}-letters",
        statestore_cache_max_bytes=0,
        **settings,
    )


def test_an_application_skips_a_record_that_is_too_large(
    log: Broker, named: Named, broker_settings: dict[str, Any], tmp_path: Path
) -> None:
    topic = named("large")
    log.create_topic(topic, settings={"max.message.bytes": str(2 * LIMIT)})
    for other in ("out", "letters"):
        log.create_topic(f"{topic}-{other}")
    log.append([record(topic, bytes(size)) for size in (1, LIMIT, 1)])
    query = query_of(topic, tmp_path, broker_settings)

    query.run()

    assert_holds(log, TopicPartition(f"{topic}-out", 0), [b"1", b"2"])
    assert query.dropped() == {"0_0": {"source": {"deserialization": 1}}}
    [dead_letter] = records_of(log, f"{topic}-letters")
    assert dead_letter.key is dead_letter.value is None
    assert dead_letter.headers.last("__streams.errors.offset") == b"1"


@pytest.mark.parametrize("broker_settings", ["kafka"], indirect=True)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_an_application_skips_a_record_that_expands(
    kafka: RunningBroker,
    log: Broker,
    named: Named,
    broker_settings: dict[str, Any],
    tmp_path: Path,
    codec: str,
) -> None:
    topic = named("bomb")
    log.create_topic(topic, settings={"max.message.bytes": str(16 << 20)})
    for other in ("out", "letters"):
        log.create_topic(f"{topic}-{other}")
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": kafka.address,
            "compression.type": codec,
            "message.max.bytes": 2 * EXPANDED,
            "queue.buffering.max.kbytes": 2 * EXPANDED >> 10,
        }
    )
    for size in (1, EXPANDED, 1):
        producer.produce(topic, bytes(size), b"k", partition=0)
        assert producer.flush(60) == 0
    query = query_of(topic, tmp_path, broker_settings)

    query.run()

    assert values(log, TopicPartition(topic, 0), 2, 3) == [b"\0"]
    assert_holds(log, TopicPartition(f"{topic}-out", 0), [b"1", b"2"])
    assert query.dropped() == {"0_0": {"source": {"deserialization": 1}}}
