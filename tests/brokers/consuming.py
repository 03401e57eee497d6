"""Helpers for tests of consumers: writing, and polling until a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import ConsumerRecord, ProducerRecord
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer
from tests.waiting import await_that

Named = Callable[[str], str]
Settings = dict[str, Any]
Opened = Callable[..., KafkaConsumer[str, str]]


def write(log: Broker, topic: str, *values: str, partition: int = 0) -> None:
    log.append([ProducerRecord(topic, partition, 1, b"k", value.encode()) for value in values])


def take(consumer: KafkaConsumer[str, str], count: int) -> list[ConsumerRecord]:
    """Poll until ``count`` records are there."""
    found: list[ConsumerRecord] = []

    def is_enough() -> bool:
        found.extend(consumer.poll("100ms"))
        return len(found) >= count

    await_that(is_enough, f"{count} records", found=lambda: values(found))
    return found


def values(records: list[ConsumerRecord]) -> list[str]:
    return [record.value for record in records]


def poll_until(
    consumer: KafkaConsumer[str, str],
    is_done: Callable[[], bool],
    what: str,
    found: Callable[[], object],
) -> None:
    """Poll until something is so.

    Args:
        consumer: Polls.
        is_done: Tells whether it is so.
        what: Names what the test waits for.
        found: Tells what is there instead.
    """

    def is_done_by_now() -> bool:
        if is_done():
            return True
        consumer.poll("50ms")
        return False

    await_that(is_done_by_now, what, found=found)
