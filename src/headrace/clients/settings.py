"""The settings of producers and consumers: keywords, under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, cast

from headrace.clients.partitioning import PARTITIONER, Partitioner
from headrace.config import Settings, StreamsConfig
from headrace.config.catalogue import keyword_of
from headrace.config.names import CONSUMER_NAMES, PRODUCER_NAMES, SECURITY_PREFIXES
from headrace.config.settings import ClientSettings
from headrace.config.streams_config import Client, catalogue
from headrace.durations import Duration
from headrace.errors import ConfigError

ClientKind: TypeAlias = Literal["producer", "consumer", "admin"]
ClientConfig: TypeAlias = StreamsConfig | Mapping[str, Any]
"""The config of an application, or a mapping of Kafka's dotted names."""


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
    partitioner: Partitioner | type[Any] | str | None
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
    "admin": {},
}
_SERDES = {
    f"{part}.{kind}": part
    for part in ("key", "value")
    for kind in ("serializer", "deserializer", "serde")
}
"""Names of Java's settings, and the keywords that take their place."""


def client_config(
    kind: ClientKind, config: ClientConfig | None, settings: Mapping[str, Any]
) -> tuple[StreamsConfig, dict[str, str]]:
    """Return the broker's settings, and those of the client under Kafka's names.

    Args:
        kind: The client.
        config: A config of an application, or a mapping of dotted names.
        settings: Keywords, which win.

    Raises:
        ConfigError: Settings that cannot be used, all of them together.
    """
    names = _SPECIFIC[kind]
    if isinstance(config, Mapping):
        config = _own_names(kind, config)
    shared = {keyword: value for keyword, value in settings.items() if keyword in _ANY}
    specific = {names[keyword]: value for keyword, value in settings.items() if keyword in names}
    if unknown := [keyword for keyword in settings if keyword not in _ANY | names.keys()]:
        raise ConfigError(_unknown(keyword, [*_ANY, *names]) for keyword in unknown)
    # The broker is asked under the client's settings too: `merged` lays them over the config's.
    merged = StreamsConfig.merged(config, cast(Settings, {**shared, kind: specific}))
    client: Client = "main.consumer" if kind == "consumer" else kind
    names_and_values = dict(merged.client_settings(client))
    if merged.client_id is not None:
        names_and_values["client.id"] = merged.client_id
    return merged, names_and_values


def _own_names(kind: ClientKind, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted names as `StreamsConfig` reads them; names of other clients are refused."""
    own = (
        {*_SPECIFIC[kind].values(), PARTITIONER}
        if kind == "producer"
        else {*_SPECIFIC[kind].values()}
    )
    shared = {setting.name for setting in catalogue().values() if setting.keyword in _ANY}
    problems = []
    for name in properties:
        if name in _SERDES:
            problems.append(f"`{name}` is the keyword `{_SERDES[name]}=` here. Remove it.")
        elif name not in own | shared and not name.startswith(SECURITY_PREFIXES):
            problems.append(_unknown(name, [*own, *shared]))
    if problems:
        raise ConfigError(problems)
    return {f"{kind}.{name}" if name in own else name: properties[name] for name in properties}


def _unknown(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    remedy = f"Did you mean `{close[0]}`?" if close else "Remove it."
    return f"`{name}` is not a setting of this client. {remedy}"
