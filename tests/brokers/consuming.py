"""What the tests of consumers share: writing, and polling until something is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headrace import ConsumerRecord, ProducerRecord
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer

Named = Callable[[str], str]
Settings = dict[str, Any]
Opened = Callable[..., KafkaConsumer[str, str]]

SECONDS = 30


def write(log: Broker, topic: str, *values: str, partition: int = 0) -> None:
    log.append([ProducerRecord(topic, partition, 1, b"k", value.encode()) for value in values])


def take(consumer: KafkaConsumer[str, str], count: int) -> list[ConsumerRecord]:
    """Poll until ``count`` records are there."""
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll("100ms")
    return found


def values(records: list[ConsumerRecord]) -> list[str]:
    return [record.value for record in records]


def poll_until(consumer: KafkaConsumer[str, str], is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_done() and time.monotonic() < deadline:
        consumer.poll("50ms")
    assert is_done()
