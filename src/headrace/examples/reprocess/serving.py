"""The readers of the counts: they look up which version is current, and read its topic."""

from __future__ import annotations

from contextlib import closing
from typing import TypeVar

from headrace import StreamsConfig
from headrace.brokers import TopicPartition, open_log
from headrace.clients import KafkaProducer
from headrace.serdes.deduce import serde_for

V = TypeVar("V")

POINTER = "word-counts-current"
"""The topic that names the version that readers use: its last record."""


def last_values(config: StreamsConfig, topic: str, value: type[V]) -> dict[str, V]:
    """Return the last value of each key in a topic."""
    keys, serde = serde_for(str), serde_for(value)
    values: dict[str, V] = {}
    with closing(open_log(config)) as log:
        partitions = [TopicPartition(topic, each) for each in range(log.partition_count(topic))]
        for partition, end in log.end_offsets(partitions).items():
            for records in log.read(partition, 0, end):
                values |= {
                    keys.deserialize(each.key or b""): serde.deserialize(each.value or b"")
                    for each in records
                }
    return values


def switch_to(version: str, config: StreamsConfig) -> None:
    """Let readers use a version from now on; switching back is the same call."""
    with KafkaProducer(config, key=str, value=str) as producer:
        producer.send(POINTER, "word-counts", version).result()


def read_counts(config: StreamsConfig) -> tuple[str, dict[str, int]]:
    """Return the current version and its counts, as a reader sees them."""
    version = last_values(config, POINTER, str)["word-counts"]
    return version, last_values(config, f"word-counts-{version}", int)
