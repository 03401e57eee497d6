"""The readers of the counts: they look up which version is current, and read its topic."""

from __future__ import annotations

from typing import TypeVar

from headrace import StreamsConfig
from headrace.clients import KafkaConsumer, KafkaProducer

V = TypeVar("V")

POINTER = "word-counts-current"
"""The topic that names the version that readers use: its last record."""


def last_values(config: StreamsConfig, topic: str, value: type[V]) -> dict[str, V]:
    """Return the last value of each key in a topic."""
    with KafkaConsumer(config, key=str, value=value) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        ends = consumer.end_offsets(partitions)
        values: dict[str, V] = {}
        while any(consumer.position(each) < ends[each] for each in partitions):
            values |= {record.key: record.value for record in consumer.poll("1s")}
    return values


def switch_to(version: str, config: StreamsConfig) -> None:
    """Let readers use a version from now on; switching back is the same call."""
    with KafkaProducer(config, key=str, value=str) as producer:
        producer.send(POINTER, "word-counts", version).result()


def read_counts(config: StreamsConfig) -> tuple[str, dict[str, int]]:
    """Return the current version and its counts, as a reader sees them."""
    version = last_values(config, POINTER, str)["word-counts"]
    return version, last_values(config, f"word-counts-{version}", int)
