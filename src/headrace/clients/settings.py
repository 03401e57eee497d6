"""The settings of producers and consumers: keywords, under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, cast

from headrace.config import Settings, StreamsConfig
from headrace.config.catalogue import keyword_of
from headrace.config.names import CONSUMER_NAMES, PRODUCER_NAMES
from headrace.config.settings import ClientSettings
from headrace.durations import Duration
from headrace.errors import ConfigError

Partitioner: TypeAlias = Callable[[str, Any, Any, int], int | None]
"""f(topic, key, value, partitions): the partition of a record, or None for Kafka's choice."""


class ProducerSettings(ClientSettings, total=False):
    """The keywords of `KafkaProducer`."""

    acks: Literal["all", "1", "0"] | int
    batch_size: int
    buffer_memory: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    delivery_timeout: Duration
    enable_idempotence: bool
    linger: Duration
    max_block: Duration
    max_in_flight_requests_per_connection: int
    max_request_size: int
    partitioner: Partitioner | None
    retries: int
    transaction_timeout: Duration
    transactional_id: str | None


class ConsumerSettings(ClientSettings, total=False):
    """The keywords of `KafkaConsumer`."""

    auto_commit_interval: Duration
    auto_offset_reset: Literal["earliest", "latest", "none"]
    check_crcs: bool
    client_rack: str
    enable_auto_commit: bool
    fetch_max_bytes: int
    fetch_max_wait: Duration
    fetch_min_bytes: int
    group_instance_id: str
    group_protocol: Literal["classic", "consumer"]
    heartbeat_interval: Duration
    isolation_level: Literal["read_committed", "read_uncommitted"]
    max_partition_fetch_bytes: int
    max_poll_interval: Duration
    max_poll_records: int
    partition_assignment_strategy: str
    session_timeout: Duration


_ANY = frozenset(ClientSettings.__annotations__)
_SPECIFIC = {
    "producer": {keyword_of(name): name for name in PRODUCER_NAMES},
    "consumer": {
        keyword_of(name): name
        for name in CONSUMER_NAMES | {"group.protocol", "partition.assignment.strategy"}
    },
}


def client_config(
    kind: Literal["producer", "consumer"], settings: Mapping[str, Any]
) -> tuple[StreamsConfig, dict[str, str]]:
    """Return the broker's settings, and those of the client under Kafka's names.

    Raises `ConfigError` with all settings that cannot be used.
    """
    names = _SPECIFIC[kind]
    shared = {keyword: value for keyword, value in settings.items() if keyword in _ANY}
    specific = {names[keyword]: value for keyword, value in settings.items() if keyword in names}
    if unknown := [keyword for keyword in settings if keyword not in _ANY | names.keys()]:
        raise ConfigError(_unknown(keyword, [*_ANY, *names]) for keyword in unknown)
    config = StreamsConfig(**cast(Settings, {**shared, kind: specific}))
    names_and_values = dict(
        config.client_settings("producer" if kind == "producer" else "main.consumer")
    )
    if config.client_id is not None:
        names_and_values["client.id"] = config.client_id
    return config, names_and_values


def _unknown(keyword: str, known: Iterable[str]) -> str:
    close = get_close_matches(keyword, list(known), n=1)
    remedy = f"Did you mean `{close[0]}`?" if close else "Remove it."
    return f"`{keyword}` is not a setting of this client. {remedy}"
