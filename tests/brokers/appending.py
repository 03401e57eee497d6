"""Helpers for tests of logs: records, and the contents of a partition."""

from __future__ import annotations

from headrace import ProducerRecord
from headrace.brokers import TopicPartition
from headrace.brokers.sessions import Broker
from tests.waiting import await_that


def record(
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None = b"k",
    partition: int = 0,
    timestamp: int = 1,
) -> ProducerRecord:
    return ProducerRecord(topic, partition, timestamp, key, value)


def values(
    log: Broker, partition: TopicPartition, start: int = 0, end: int | None = None
) -> list[bytes]:
    if end is None:
        end = log.end_offsets([partition])[partition]
    return [each.value for batch in log.read(partition, start, end) for each in batch]


def assert_holds(log: Broker, partition: TopicPartition, expected: list[bytes]) -> None:
    """Assert what a partition holds, once the broker has counted what was just committed."""
    found: list[bytes] = []

    def is_all_there() -> bool:
        found[:] = values(log, partition)
        return len(found) >= len(expected)

    await_that(is_all_there, f"{expected} in {partition}", found=lambda: found)
    assert found == expected
