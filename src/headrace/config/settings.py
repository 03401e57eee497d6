"""The settings as keywords, with the types that an editor and mypy check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from headrace.durations import Duration
from headrace.processors.handlers import ExceptionHandler
from headrace.serdes.base import SerdeLike
from headrace.timestamps import TimestampExtractor

Handler: TypeAlias = ExceptionHandler | type[Any] | str
"""``"fail"``, ``"continue"``, a function, a class of callables, or ``"module:name"``."""
SettingsMapping: TypeAlias = Mapping[str, Any]
"""Dotted names to values; None leaves a name out."""


class ClientSettings(TypedDict, total=False):
    """The settings of the connection: the same for applications and clients."""

    bootstrap_servers: str | Iterable[str] | None
    client_id: str | None
    state_dir: str | Path
    work_dir: str | Path | None
    embedded_path: str | Path | None

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_jaas_config: str | None
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_key_location: str | None
    ssl_key_password: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_endpoint_identification_algorithm: str | None

    request_timeout: Duration | None
    retry_backoff: Duration | None
    reconnect_backoff: Duration | None
    reconnect_backoff_max: Duration | None
    connections_max_idle: Duration | None
    metadata_max_age: Duration | None
    receive_buffer_bytes: int | None
    send_buffer_bytes: int | None


class Settings(ClientSettings, total=False):
    """The keywords of `StreamsConfig`, of `KafkaStreams` and of the test driver."""

    application_id: str | None
    application_server: str | None
    server_token_file: str | Path | None
    server_tls_certificate: str | Path | None
    server_tls_key: str | Path | None

    trigger: Literal["continuous", "available_now"] | Duration
    processing_guarantee: Literal["exactly_once_v2", "at_least_once"]
    commit_interval: Duration
    max_task_idle: Duration
    task_timeout: Duration
    num_stream_threads: int | None
    fail_on_data_loss: bool
    max_record_bytes: int
    buffered_records_per_partition: int

    default_key_serde: SerdeLike[Any] | str | None
    default_value_serde: SerdeLike[Any] | str | None
    default_timestamp_extractor: TimestampExtractor | type[Any] | str

    deserialization_exception_handler: Handler
    processing_exception_handler: Handler
    production_exception_handler: Handler
    processing_exception_handler_global_enabled: bool
    errors_dead_letter_queue_topic_name: str | None

    topology_optimization: str | Iterable[str]
    ensure_explicit_internal_resource_naming: bool

    default_dsl_store: Literal["rocksdb", "in_memory"]
    statestore_cache_max_bytes: int
    num_standby_replicas: int
    replication_factor: int
    windowstore_changelog_additional_retention: Duration

    log_summary_interval: Duration
    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"]

    consumer: SettingsMapping
    main_consumer: SettingsMapping
    restore_consumer: SettingsMapping
    global_consumer: SettingsMapping
    producer: SettingsMapping
    admin: SettingsMapping
    topic: SettingsMapping
    client_tag: SettingsMapping
    spark: SettingsMapping
    app_configs: SettingsMapping
