from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from headrace.config import StreamsConfig, catalogue
from headrace.config.values import Prefixed
from headrace.errors import ConfigError
from headrace.spark.session import SETTINGS
from headrace.timestamps import FailOnInvalidTimestamp

# Section 6 of the spec, for the settings that have a value unless one is given.
KAFKA = {
    "buffered.records.per.partition": 1_000,
    "commit.interval.ms": 100,
    "max.task.idle.ms": 0,
    "task.timeout.ms": 300_000,
    "default.timestamp.extractor": FailOnInvalidTimestamp(),
    "deserialization.exception.handler": "fail",
    "processing.exception.handler": "fail",
    "production.exception.handler": "fail",
    "processing.exception.handler.global.enabled": False,
    "topology.optimization": "none",
    "ensure.explicit.internal.resource.naming": False,
    "default.dsl.store": "rocksdb",
    "statestore.cache.max.bytes": 10_485_760,
    "num.standby.replicas": 0,
    "replication.factor": -1,
    "windowstore.changelog.additional.retention.ms": 86_400_000,
    "metrics.recording.level": "INFO",
    "security.protocol": "PLAINTEXT",
}
OWN = {
    "processing.guarantee": "exactly_once_v2",
    "state.dir": ".headrace",
    "trigger": "continuous",
    "fail.on.data.loss": True,
    "max.record.bytes": 67_108_864,
    "log.summary.interval.ms": 10_000,
}


def test_the_defaults_are_kafkas_or_our_own_on_purpose() -> None:
    defaults = {
        setting.name: setting.value.property_of(setting.default)
        for setting in catalogue().values()
        if setting.default is not None and not isinstance(setting.value, Prefixed)
    }

    assert defaults == KAFKA | OWN


@pytest.mark.parametrize(
    ("keyword", "least", "less"),
    [
        ("commit_interval", 0, -1),
        ("max_task_idle", -1, -2),
        ("task_timeout", 0, -1),
        ("num_stream_threads", 1, 0),
        ("max_record_bytes", 1, 0),
        ("buffered_records_per_partition", 1, 0),
        ("statestore_cache_max_bytes", 0, -1),
        ("num_standby_replicas", 0, -1),
        ("replication_factor", -1, -2),
        ("windowstore_changelog_additional_retention", 0, -1),
        ("request_timeout", 0, -1),
        ("retry_backoff", 0, -1),
        ("reconnect_backoff", 0, -1),
        ("reconnect_backoff_max", 0, -1),
        ("metadata_max_age", 0, -1),
        ("receive_buffer_bytes", -1, -2),
        ("send_buffer_bytes", -1, -2),
    ],
)
def test_a_number_may_be_as_small_as_kafka_allows(keyword: str, least: int, less: int) -> None:
    config = cast(Any, StreamsConfig)

    assert config(**{keyword: least}).given[keyword] in (least, timedelta(milliseconds=least))
    with pytest.raises(ConfigError, match=f"`{keyword}` is {less}"):
        config(**{keyword: less})


def test_some_lengths_are_switched_off_by_a_negative_number() -> None:
    config = StreamsConfig(log_summary_interval=-5, connections_max_idle="-1ms")

    assert config.log_summary_interval == timedelta(milliseconds=-5)
    assert config.connections_max_idle == timedelta(milliseconds=-1)


def test_a_name_may_be_as_long_as_the_paths_and_topics_made_of_it_allow() -> None:
    config = StreamsConfig(
        application_id="a" * 200,
        client_id="c" * 200,
        errors_dead_letter_queue_topic_name="d" * 249,
    )

    assert config.application_id == "a" * 200
    for settings in (
        {"application_id": "a" * 201},
        {"client_id": "c" * 201},
        {"errors_dead_letter_queue_topic_name": "d" * 250},
    ):
        with pytest.raises(ConfigError, match="cannot be part of a topic or a path"):
            cast(Any, StreamsConfig)(**settings)


def test_every_client_receives_only_addresses_security_and_connections() -> None:
    for_clients = {setting.name for setting in catalogue().values() if setting.named.for_clients}

    assert for_clients == {
        setting.name
        for setting in catalogue().values()
        if setting.name.startswith(("bootstrap.", "security.", "sasl.", "ssl."))
        or setting.name.startswith(("request.", "retry.", "reconnect.", "connections."))
        or setting.name.startswith(("metadata.", "receive.", "send."))
    }


def test_names_of_spark_are_passed_on_as_they_are() -> None:
    config = StreamsConfig(spark={"spark.executorEnv.MY_VARIABLE": "x", "spark.some.ms": "5s"})

    assert config.spark == {"spark.executorEnv.MY_VARIABLE": "x", "spark.some.ms": "5s"}


def test_a_default_that_is_given_is_the_same_config() -> None:
    config = StreamsConfig(commit_interval="100ms")

    assert config == StreamsConfig()
    assert config.given == {"commit_interval": timedelta(milliseconds=100)}


def test_in_a_contradiction_the_boundary_is_allowed() -> None:
    config = StreamsConfig(
        producer={"max.in.flight.requests.per.connection": 5}, spark={"spark.speculation": False}
    )

    assert config.spark == {"spark.speculation": "false"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.speculation", "TRUE"),
        (
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
        ),
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "1"),
        ("spark.sql.streaming.checkpointFileManagerClass", "org.example.Manager"),
        ("spark.sql.streaming.offsetLog.formatVersion", "2"),
        ("spark.sql.streaming.checkpoint.verifyMetadataExists.enabled", "false"),
        ("spark.sql.streaming.statefulOperator.useStrictDistribution", "false"),
        ("spark.sql.streaming.internal.stateStore.partitions", "4"),
    ],
)
def test_a_setting_of_spark_that_breaks_a_promise_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        StreamsConfig(spark={name: value})

    (problem,) = raised.value.problems
    assert problem.startswith(f"`spark` has {name!r} = {value}, but ")
    assert problem.endswith(". Remove it.")


@pytest.mark.parametrize("kind", ["FileSystem", "FileContext"])
def test_settings_of_spark_that_keep_the_promises_or_only_tune_are_allowed(kind: str) -> None:
    streaming = "org.apache.spark.sql.execution.streaming"
    manager = f"{streaming}.checkpointing.{kind}BasedCheckpointFileManager"
    spark = {
        "spark.sql.streaming.checkpointFileManagerClass": manager,
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "100",
    }

    assert StreamsConfig(spark=spark).spark == spark


def test_the_settings_of_every_query_are_allowed() -> None:
    assert StreamsConfig(spark=SETTINGS).spark == SETTINGS
