"""The producer of the document: callbacks, batches, a full buffer, a partitioner of its own."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from headrace import BufferExhaustedError, RecordMetadata, StreamsConfig, StreamsError
from headrace.clients import KafkaProducer

TOPIC, LOGS = "my-topic", "logs"


def print_partition(metadata: RecordMetadata | None, error: StreamsError | None) -> None:
    """Print where a record was written; the producer calls this once per record."""
    if metadata is None:
        print(f"not written: {error}")
    else:
        print(f"partition={metadata.partition} offset={metadata.offset}")


def send_all(config: StreamsConfig, count: int = 100, **settings: Any) -> None:
    """Send ``KEY-i`` and ``VALUE-i``, and return when all are written."""
    with KafkaProducer(config, key=str, value=str, **settings) as producer:
        for i in range(count):
            producer.send(TOPIC, f"KEY-{i}", f"VALUE-{i}", on_completion=print_partition)


def fill_the_buffer(config: StreamsConfig) -> BufferExhaustedError | None:
    """Send faster than the producer may: it holds 2 KB, sends nothing yet, and waits 10 ms."""
    settings: Any = {"buffer_memory": 2048, "batch_size": 1 << 20, "linger": "1m", "max_block": 10}
    with KafkaProducer(config, key=str, value=str, **settings) as producer:
        for i in range(1_000):
            try:
                producer.send(TOPIC, f"KEY-{i}", "x" * 100)
            except BufferExhaustedError as error:
                return error
    return None


def by_browser(_topic: str, _key: Any, value: str, partitions: int) -> int | None:
    """Let the field ``browserHash`` of the JSON decide the partition, not the key."""
    try:
        browser = json.loads(value)["browserHash"]
    except (ValueError, KeyError, TypeError):
        return None  # Kafka's choice
    return crc32(str(browser).encode()) % partitions


def send_logs(config: StreamsConfig, count: int, **settings: Any) -> None:
    """Send log events as JSON; those of one browser go to one partition."""
    named = f"{__name__}:by_browser"  # also in a copy of this folder
    with KafkaProducer(config, key=str, value=str, partitioner=named, **settings) as producer:
        for i in range(count):
            event = json.dumps({"browserHash": f"XXXYXXXY{i % 5}", "message": f"event {i}"})
            producer.send(LOGS, None, event)
