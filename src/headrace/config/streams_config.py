"""StreamsConfig: every setting of an application, typed, under Kafka's names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Unpack, cast

from headrace.config.catalogue import Catalogue, HeadraceName, KafkaName, catalogue_of, client_name
from headrace.config.loading import settings_file, settings_from_file
from headrace.config.masking import MaskedSettings, masked_repr
from headrace.config.objects import ExtractorValue, HandlerValue, SerdeValue
from headrace.config.reading import Reading
from headrace.config.settings import Settings
from headrace.config.values import (
    Addresses,
    Choice,
    Flag,
    Length,
    Location,
    Name,
    Optimizations,
    Prefixed,
    Text,
    Trigger,
    Whole,
)
from headrace.durations import duration_text
from headrace.errors import ConfigError
from headrace.processors.handlers import ExceptionHandler, HandlerKind
from headrace.serdes.base import Serde
from headrace.timestamps import FailOnInvalidTimestamp, TimestampExtractor

Client: TypeAlias = Literal[
    "main.consumer", "restore.consumer", "global.consumer", "producer", "admin"
]
"""The Kafka clients of an application."""

_FAIL_ON_INVALID = FailOnInvalidTimestamp()
_NONE: MaskedSettings[str] = MaskedSettings()
_MILLISECOND = timedelta(milliseconds=1)

_SPARK_STREAMING = "org.apache.spark.sql.execution.streaming"
_SPARK_PROMISES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "spark.speculation": (("false",), "a task that runs twice would write twice"),
    "spark.sql.streaming.stateStore.providerClass": (
        (f"{_SPARK_STREAMING}.state.RocksDBStateStoreProvider",),
        "only RocksDB's provider keeps the state that tasks need",
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": (
        ("2",),
        "with any version but 2 an abandoned task could overwrite the state of the one after it",
    ),
    "spark.sql.streaming.checkpointFileManagerClass": (
        tuple(
            f"{_SPARK_STREAMING}.checkpointing.{kind}BasedCheckpointFileManager"
            for kind in ("FileSystem", "FileContext")
        ),
        "the files of a checkpoint must appear whole or not at all, as with Spark's own managers "
        "that rename them",
    ),
    "spark.sql.streaming.offsetLog.formatVersion": (
        ("1",),
        "in any format but 1, an older copy of a checkpoint looks like the newest one",
    ),
    "spark.sql.streaming.checkpoint.verifyMetadataExists.enabled": (
        ("true",),
        "without that check a checkpoint that lost its query's id would write a batch twice",
    ),
    "spark.sql.streaming.statefulOperator.useStrictDistribution": (
        ("true",),
        "without it Spark may read state from the wrong partition",
    ),
    "spark.sql.streaming.internal.stateStore.partitions": (
        (),
        "state and transactions go by `spark.sql.shuffle.partitions`",
    ),
}
"""Settings of Spark that the guarantees depend on: allowed values, and what others break."""


@dataclass(frozen=True, init=False, repr=False)
class StreamsConfig:
    """The settings of one application. Immutable; `with_settings` returns another.

    Args:
        settings: One keyword for each field; lengths of time may be text, milliseconds or a
            ``timedelta``. None leaves a setting at its default.

    Raises:
        ConfigError: Settings that cannot be used, all of them together.
    """

    application_id: Annotated[str | None, KafkaName("application.id"), Name()] = None
    """Names the application: its groups, its state and its internal topics. Needed to run."""
    bootstrap_servers: Annotated[str | None, client_name("bootstrap.servers"), Addresses()] = None
    """The addresses of Kafka; without them topics are in the embedded log."""
    client_id: Annotated[str | None, KafkaName("client.id"), Name()] = None
    """Begins the names that the application's clients have in the logs of the broker."""
    application_server: Annotated[
        str | None, KafkaName("application.server"), Addresses(single=True)
    ] = None
    """Where the application answers queries; without it there is no server."""
    server_token_file: Annotated[Path | None, HeadraceName("server.token.file"), Location()] = None
    """The file of the token that clients and other instances send; needed off this machine."""
    server_tls_certificate: Annotated[
        Path | None, HeadraceName("server.tls.certificate"), Location()
    ] = None
    """The file of the certificates by which the server of queries is known (PEM)."""
    server_tls_key: Annotated[Path | None, HeadraceName("server.tls.key"), Location()] = None
    """The file of the private key of that certificate (PEM)."""
    state_dir: Annotated[Path, KafkaName("state.dir"), Location()] = Path(".headrace")
    """Holds checkpoints and state. Must outlive the process; on a cluster all must reach it."""
    work_dir: Annotated[Path | None, HeadraceName("work.dir"), Location()] = None
    """Holds the lock, run files and logs, on this machine; without it they are in `state.dir`."""
    embedded_path: Annotated[Path | None, HeadraceName("embedded.path"), Location()] = None
    """The file of the embedded log; without it a file in `state.dir`."""

    trigger: Annotated[
        Literal["continuous", "available_now"] | timedelta, HeadraceName("trigger"), Trigger()
    ] = "continuous"
    """When batches run: one after the other, until the input is used up, or at an interval."""
    processing_guarantee: Annotated[
        Literal["exactly_once_v2", "at_least_once"],
        KafkaName("processing.guarantee"),
        Choice(("exactly_once_v2", "at_least_once")),
    ] = "exactly_once_v2"
    """Whether a result can appear twice after a failure."""
    commit_interval: Annotated[timedelta, KafkaName("commit.interval.ms"), Length()] = timedelta(
        milliseconds=100
    )
    """Accepted, and without effect: each batch commits what it did, see `trigger`."""
    max_task_idle: Annotated[timedelta, KafkaName("max.task.idle.ms"), Length(-1)] = timedelta()
    """How long a task waits for an input that is empty; -1 never waits, even if more is there."""
    task_timeout: Annotated[timedelta, KafkaName("task.timeout.ms"), Length()] = timedelta(
        minutes=5
    )
    """How long a task may fail to make progress before the application stops."""
    num_stream_threads: Annotated[int | None, KafkaName("num.stream.threads"), Whole(1)] = None
    """How many tasks run at once on a local Spark master; without it `spark.master` decides."""
    fail_on_data_loss: Annotated[bool, HeadraceName("fail.on.data.loss"), Flag()] = True
    """Whether records that expired before they were read stop the application."""
    max_record_bytes: Annotated[int, HeadraceName("max.record.bytes"), Whole(1)] = 64 * 1024 * 1024
    """How large the key, value and headers of a record may be; see the deserialization handler."""
    buffered_records_per_partition: Annotated[
        int, KafkaName("buffered.records.per.partition"), Whole(1)
    ] = 1000
    """How many records of an input a task buffers before no more of that input are read."""

    default_key_serde: Annotated[
        Serde[Any] | None, KafkaName("default.key.serde"), SerdeValue()
    ] = None
    """The serde of keys where the program gives none."""
    default_value_serde: Annotated[
        Serde[Any] | None, KafkaName("default.value.serde"), SerdeValue()
    ] = None
    """The serde of values where the program gives none."""
    default_timestamp_extractor: Annotated[
        TimestampExtractor, KafkaName("default.timestamp.extractor"), ExtractorValue()
    ] = _FAIL_ON_INVALID
    """The extractor of timestamps where the program gives none."""

    deserialization_exception_handler: Annotated[
        HandlerKind | ExceptionHandler,
        KafkaName("deserialization.exception.handler"),
        HandlerValue(),
    ] = "fail"
    """Decides about a record that the serde cannot decode."""
    processing_exception_handler: Annotated[
        HandlerKind | ExceptionHandler, KafkaName("processing.exception.handler"), HandlerValue()
    ] = "fail"
    """Decides about a record that a step fails on."""
    production_exception_handler: Annotated[
        HandlerKind | ExceptionHandler, KafkaName("production.exception.handler"), HandlerValue()
    ] = "fail"
    """Decides about a result that cannot be written."""
    processing_exception_handler_global_enabled: Annotated[
        bool, KafkaName("processing.exception.handler.global.enabled"), Flag()
    ] = False
    """Accepted, and without effect: the handler always decides about global stores too."""
    errors_dead_letter_queue_topic_name: Annotated[
        str | None, KafkaName("errors.dead.letter.queue.topic.name"), Name(249)
    ] = None
    """The topic that the handlers `fail` and `continue` write dead letters to."""

    topology_optimization: Annotated[
        tuple[str, ...], KafkaName("topology.optimization"), Optimizations()
    ] = ()
    """Which rewrites are applied to the topology."""
    ensure_explicit_internal_resource_naming: Annotated[
        bool, KafkaName("ensure.explicit.internal.resource.naming"), Flag()
    ] = False
    """Whether stores and repartitions without a name of yours are refused."""

    default_dsl_store: Annotated[
        Literal["rocksdb", "in_memory"],
        KafkaName("default.dsl.store"),
        Choice(
            ("rocksdb", "in_memory"),
            {"RocksDBDslStoreSuppliers": "rocksdb", "InMemoryDslStoreSuppliers": "in_memory"},
        ),
    ] = "rocksdb"
    """The kind of store where `Materialized` gives none."""
    statestore_cache_max_bytes: Annotated[int, KafkaName("statestore.cache.max.bytes"), Whole()] = (
        10 * 1024 * 1024
    )
    """Memory for holding back repeated updates of a key; with 0 every update is passed on."""
    num_standby_replicas: Annotated[int, KafkaName("num.standby.replicas"), Whole()] = 0
    """The standby copies of each store among the instances that answer queries. Left out: 1."""
    replication_factor: Annotated[int, KafkaName("replication.factor"), Whole(-1)] = -1
    """The replicas of internal topics; -1 leaves it to the broker."""
    windowstore_changelog_additional_retention: Annotated[
        timedelta, KafkaName("windowstore.changelog.additional.retention.ms"), Length()
    ] = timedelta(days=1)
    """Accepted, and without effect: no changelog deletes records by age."""

    log_summary_interval: Annotated[
        timedelta, KafkaName("log.summary.interval.ms"), Length(None)
    ] = timedelta(seconds=10)
    """How often a summary is logged without a terminal; 0 or less: never. Kafka's default is 2m."""
    metrics_recording_level: Annotated[
        Literal["INFO", "DEBUG", "TRACE"],
        KafkaName("metrics.recording.level"),
        Choice(("INFO", "DEBUG", "TRACE")),
    ] = "INFO"
    """Accepted, and without effect: the same is measured at each level."""

    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        client_name("security.protocol"),
        Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    ] = "PLAINTEXT"
    """How clients talk to the broker."""
    sasl_mechanism: Annotated[str | None, client_name("sasl.mechanism"), Text()] = None
    """How clients log in: `PLAIN`, `SCRAM-SHA-512`, `OAUTHBEARER`, `GSSAPI`."""
    sasl_username: Annotated[str | None, client_name("sasl.username"), Text()] = None
    """The user to log in as."""
    sasl_password: Annotated[str | None, client_name("sasl.password"), Text()] = None
    """The password of the user. Never printed."""
    sasl_jaas_config: Annotated[str | None, client_name("sasl.jaas.config"), Text()] = None
    """User and password as Java clients write them. Never printed."""
    ssl_ca_location: Annotated[str | None, client_name("ssl.ca.location"), Text()] = None
    """The file of the certificates to trust."""
    ssl_certificate_location: Annotated[
        str | None, client_name("ssl.certificate.location"), Text()
    ] = None
    """The file of the client's certificate."""
    ssl_key_location: Annotated[str | None, client_name("ssl.key.location"), Text()] = None
    """The file of the client's private key."""
    ssl_key_password: Annotated[str | None, client_name("ssl.key.password"), Text()] = None
    """The password of the private key. Never printed."""
    ssl_keystore_location: Annotated[str | None, client_name("ssl.keystore.location"), Text()] = (
        None
    )
    """The key store (PKCS#12) with the client's key and certificate."""
    ssl_keystore_password: Annotated[str | None, client_name("ssl.keystore.password"), Text()] = (
        None
    )
    """The password of the key store. Never printed."""
    ssl_truststore_location: Annotated[
        str | None, client_name("ssl.truststore.location"), Text()
    ] = None
    """The store of the certificates to trust."""
    ssl_truststore_password: Annotated[
        str | None, client_name("ssl.truststore.password"), Text()
    ] = None
    """The password of the trust store. Never printed."""
    ssl_endpoint_identification_algorithm: Annotated[
        str | None, client_name("ssl.endpoint.identification.algorithm"), Text()
    ] = None
    """How the name of the broker is checked against its certificate."""

    request_timeout: Annotated[timedelta | None, client_name("request.timeout.ms"), Length()] = None
    """How long a client waits for an answer. Left to the client if not given, as those below."""
    retry_backoff: Annotated[timedelta | None, client_name("retry.backoff.ms"), Length()] = None
    """The pause of a client before it repeats a request."""
    reconnect_backoff: Annotated[
        timedelta | None, client_name("reconnect.backoff.ms"), Length()
    ] = None
    """How long a client waits before it connects again, at first."""
    reconnect_backoff_max: Annotated[
        timedelta | None, client_name("reconnect.backoff.max.ms"), Length()
    ] = None
    """How long a client waits before it connects again, at most."""
    connections_max_idle: Annotated[
        timedelta | None, client_name("connections.max.idle.ms"), Length(None)
    ] = None
    """How long an unused connection is kept."""
    metadata_max_age: Annotated[timedelta | None, client_name("metadata.max.age.ms"), Length()] = (
        None
    )
    """How long a client trusts what it knows of topics and partitions."""
    receive_buffer_bytes: Annotated[int | None, client_name("receive.buffer.bytes"), Whole(-1)] = (
        None
    )
    """The receive buffer of a connection; -1 leaves it to the system."""
    send_buffer_bytes: Annotated[int | None, client_name("send.buffer.bytes"), Whole(-1)] = None
    """The send buffer of a connection; -1 leaves it to the system."""

    consumer: Annotated[MaskedSettings[str], KafkaName("consumer."), Prefixed("consumer.")] = _NONE
    """Settings of every consumer."""
    main_consumer: Annotated[
        MaskedSettings[str], KafkaName("main.consumer."), Prefixed("main.consumer.")
    ] = _NONE
    """Settings of the consumer that reads the input; they win over `consumer.`."""
    restore_consumer: Annotated[
        MaskedSettings[str], KafkaName("restore.consumer."), Prefixed("restore.consumer.")
    ] = _NONE
    """Accepted, and without effect: state is restored by Spark, not from changelogs."""
    global_consumer: Annotated[
        MaskedSettings[str], KafkaName("global.consumer."), Prefixed("global.consumer.")
    ] = _NONE
    """Accepted, and without effect: global tables are read like the rest of the input."""
    producer: Annotated[MaskedSettings[str], KafkaName("producer."), Prefixed("producer.")] = _NONE
    """Settings of the producers."""
    admin: Annotated[MaskedSettings[str], KafkaName("admin."), Prefixed("admin.")] = _NONE
    """Settings of the admin client."""
    topic: Annotated[MaskedSettings[str], KafkaName("topic."), Prefixed("topic.")] = _NONE
    """Settings of the internal topics."""
    client_tag: Annotated[
        MaskedSettings[str], KafkaName("client.tag."), Prefixed("client.tag.", is_kafka=False)
    ] = _NONE
    """Accepted, and without effect: tags do not decide where copies of stores are."""
    spark: Annotated[
        MaskedSettings[str],
        HeadraceName("spark."),
        Prefixed("spark.", keeps_prefix=True, is_kafka=False),
    ] = _NONE
    """Settings of Spark, under Spark's own names."""
    app_configs: Annotated[
        MaskedSettings[str],
        HeadraceName("any other name"),
        Prefixed("", keeps_prefix=True, is_kafka=False),
    ] = _NONE
    """Settings of your program and its serdes; processors get them from `app_configs()`."""

    given: MaskedSettings[Any] = field(init=False, compare=False)
    """The settings that are not left to their defaults, by keyword."""

    def __init__(self, **settings: Unpack[Settings]) -> None:
        reading = Reading(catalogue())
        reading.take_keywords(cast(Mapping[str, object], settings))
        self._fill(reading)

    def __repr__(self) -> str:
        settings = (f"{keyword}={_repr(keyword, value)}" for keyword, value in self.given.items())
        return f"StreamsConfig({', '.join(settings)})"

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> StreamsConfig:
        """Return the config of a mapping with Kafka's dotted names, as a Java program has it.

        Numbers, booleans and durations may be text.

        Raises:
            ConfigError: Settings that cannot be used, all of them together.
        """
        reading = Reading(catalogue())
        reading.take_properties(properties)
        return cls._from_reading(reading)

    @classmethod
    def load(cls, path: str | Path | None = None) -> StreamsConfig:
        """Return the config of a file and of the environment; the environment wins.

        Args:
            path: A ``.toml`` or ``.properties`` file. Left out: ``headrace.toml`` of the working
                directory, else the table ``tool.headrace`` of its ``pyproject.toml``.

        Raises:
            ConfigError: Settings that cannot be used, all of them together.
        """
        variables = dict(os.environ)
        reading = Reading(catalogue())
        file = settings_file(Path()) if path is None else Path(path)
        if file is not None:
            read, problems = settings_from_file(file, variables)
            reading.problems += problems
            reading.take_properties(read, origin=str(file))
        reading.take_variables(variables)
        return cls._from_reading(reading)

    @classmethod
    def merged(
        cls, config: StreamsConfig | Mapping[str, Any] | None, settings: Settings
    ) -> StreamsConfig:
        """Return the config of an application that has both a config and keywords.

        Args:
            config: A config, or a mapping of dotted names.
            settings: Keywords, which win.

        Raises:
            ConfigError: Settings that cannot be used, all of them together.
        """
        reading = Reading(catalogue(), config.given if isinstance(config, StreamsConfig) else None)
        if isinstance(config, Mapping):
            reading.take_properties(config)
        elif config is not None and not isinstance(config, StreamsConfig):
            reading.problems.append(
                f"The config is of type {type(config).__name__}. "
                "Use a `StreamsConfig`, or a mapping of Kafka's dotted names."
            )
        reading.take_keywords(cast(Mapping[str, object], settings))
        return cls._from_reading(reading)

    def with_settings(self, **settings: Unpack[Settings]) -> StreamsConfig:
        """Return a config with other settings; None puts one back to its default.

        Names in a mapping (``consumer=``) are added to those that are there.
        """
        return self.merged(self, settings)

    def overlaid_by(self, other: StreamsConfig) -> StreamsConfig:
        """Return this config with the settings of ``other`` that are not defaults."""
        reading = Reading(catalogue(), self.given)
        reading.take_keywords(other.given)
        return self._from_reading(reading)

    @property
    def uses_kafka(self) -> bool:
        """Return whether the topics are on Kafka, and not in the embedded log."""
        return self.bootstrap_servers is not None

    def require_application_id(self) -> str:
        """Return the application id, which an application needs to run.

        Raises:
            ConfigError: There is none.
        """
        if self.application_id is None:
            msg = "`application_id` is not set. Choose a name that no other application has."
            raise ConfigError(msg)
        return self.application_id

    def properties(self) -> MaskedSettings[Any]:
        """Return the settings that are not defaults, as `from_properties` reads them."""
        properties: dict[str, Any] = {}
        for keyword, value in self.given.items():
            setting = catalogue()[keyword]
            if isinstance(setting.value, Prefixed):
                start = "" if setting.value.keeps_prefix else setting.name
                properties |= {f"{start}{name}": text for name, text in value.items()}
            else:
                properties[setting.name] = setting.value.property_of(value)
        return MaskedSettings(properties)

    def client_settings(self, client: Client) -> MaskedSettings[str]:
        """Return the settings of one kind of Kafka client, under Kafka's names, as text.

        The client's own names win over those of ``consumer.``, and these over those of all clients.
        """
        settings = {
            setting.name: str(setting.value.property_of(value))
            for setting in catalogue().values()
            if setting.named.for_clients
            if (value := getattr(self, setting.keyword)) is not None
        }
        if client.endswith(".consumer"):
            settings |= self.consumer
        own: MaskedSettings[str] = getattr(self, client.replace(".", "_"))
        return own.laid_over(settings)

    @classmethod
    def _from_reading(cls, reading: Reading) -> StreamsConfig:
        config = cls.__new__(cls)
        cls._fill(config, reading)
        return config

    def _fill(self, reading: Reading) -> None:
        # In the order of the fields, wherever each was written.
        values = {name: reading.values[name] for name in catalogue() if name in reading.values}
        for setting in catalogue().values():
            object.__setattr__(self, setting.keyword, values.get(setting.keyword, setting.default))
        object.__setattr__(self, "given", MaskedSettings(values))
        if "commit_interval" not in values and self.processing_guarantee == "at_least_once":
            object.__setattr__(self, "commit_interval", timedelta(seconds=30))
        if problems := [*reading.problems, *self._contradictions()]:
            raise ConfigError(problems)

    def _contradictions(self) -> Iterator[str]:
        in_flight = self.producer.get("max.in.flight.requests.per.connection", "5")
        exactly_once = self.processing_guarantee == "exactly_once_v2"
        if exactly_once and in_flight.isdecimal() and int(in_flight) > 5:
            yield (
                f"`producer` has 'max.in.flight.requests.per.connection' = {in_flight}, "
                "but exactly once keeps the order of at most 5. Use 5 or less."
            )
        if (self.server_tls_certificate is None) != (self.server_tls_key is None):
            yield "`server.tls.certificate` and `server.tls.key` need each other. Give both."
        for problem in spark_problems(self.spark):
            yield f"`spark` has {problem}. Remove it."


def spark_problems(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the settings of Spark that break exactly once or the state, and what each breaks."""
    for name, (allowed, reason) in _SPARK_PROMISES.items():
        value = settings.get(name)
        if value is not None and value.strip().lower() not in map(str.lower, allowed):
            yield f"{name!r} = {value}, but {reason}"


@cache
def catalogue() -> Catalogue:
    """Return every setting, by keyword."""
    return catalogue_of(StreamsConfig)


merged = StreamsConfig.merged


def _repr(keyword: str, value: object) -> str:
    if isinstance(value, timedelta):
        return repr(duration_text(value // _MILLISECOND))
    return masked_repr(keyword, value)
