from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from headrace.config import (
    HeadraceName,
    KafkaName,
    MaskedSettings,
    Settings,
    StreamsConfig,
    catalogue,
    merged,
)
from headrace.config.catalogue import keyword_of
from headrace.config.names import ALIASES, CONSUMER_NAMES, PRODUCER_NAMES, REFUSED, WITHOUT_EFFECT
from headrace.config.values import OPTIMIZATIONS, Prefixed
from headrace.errors import ConfigError
from headrace.timestamps import FailOnInvalidTimestamp

# Section 6 of the spec: every setting of Kafka Streams 4.3.
KAFKA_STREAMS = """
    application.id bootstrap.servers num.standby.replicas state.dir acceptable.recovery.lag
    cache.max.bytes.buffering statestore.cache.max.bytes client.id
    default.deserialization.exception.handler deserialization.exception.handler default.key.serde
    default.value.serde default.list.key.serde.inner default.list.key.serde.type
    default.list.value.serde.inner default.list.value.serde.type
    default.production.exception.handler production.exception.handler processing.exception.handler
    default.timestamp.extractor max.task.idle.ms max.warmup.replicas num.stream.threads
    processing.guarantee rack.aware.assignment.strategy rack.aware.assignment.traffic_cost
    rack.aware.assignment.non_overlap_cost rack.aware.assignment.tags replication.factor
    security.protocol task.assignor.class task.timeout.ms topology.optimization application.server
    buffered.records.per.partition built.in.metrics.version commit.interval.ms
    connections.max.idle.ms default.client.supplier default.dsl.store dsl.store.suppliers.class
    enable.metrics.push log.summary.interval.ms metadata.max.age.ms metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms poll.ms
    probing.rebalance.interval.ms receive.buffer.bytes send.buffer.bytes reconnect.backoff.ms
    reconnect.backoff.max.ms repartition.purge.interval.ms request.timeout.ms retry.backoff.ms
    rocksdb.config.setter state.cleanup.delay.ms upgrade.from window.size.ms
    windowed.inner.class.serde windowstore.changelog.additional.retention.ms processor.wrapper.class
    group.protocol ensure.explicit.internal.resource.naming errors.dead.letter.queue.topic.name
    allow.os.group.write.access processing.exception.handler.global.enabled
    state.cleanup.dir.max.age.ms dsl.store.format topology.description.push.enabled
"""


def problems_of(make: Callable[[], object]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        make()
    return raised.value.problems


def test_keywords_fields_and_kafka_names_are_the_same_settings() -> None:
    names = {setting.keyword: setting.name for setting in catalogue().values()}

    assert get_type_hints(Settings).keys() == set(names)
    assert [field.name for field in fields(StreamsConfig)] == [*names, "given"]
    assert names.pop("app_configs") == "any other name"
    assert {keyword: keyword_of(name) for keyword, name in names.items()} == {
        keyword: keyword for keyword in names
    }


def test_a_setting_that_ends_in_ms_holds_a_length_of_time_and_no_other_does() -> None:
    hints = get_type_hints(StreamsConfig)
    lengths = {name for name, hint in hints.items() if "timedelta" in str(hint)} - {"trigger"}

    assert lengths == {s.keyword for s in catalogue().values() if s.name.endswith(".ms")}


def test_a_setting_may_be_given_as_none_exactly_if_that_is_its_default() -> None:
    optional = {name for name, hint in get_type_hints(Settings).items() if "None" in str(hint)}

    assert optional == {s.keyword for s in catalogue().values() if s.default is None}


def test_every_setting_of_kafka_streams_is_known_in_exactly_one_way() -> None:
    ours = {s.name for s in catalogue().values() if isinstance(s.named, KafkaName)}

    known = set(KAFKA_STREAMS.split())

    for name in known:
        assert [name in ours, name in ALIASES, name in REFUSED, name in WITHOUT_EFFECT].count(
            True
        ) == 1, name
    assert {*ALIASES, *REFUSED, *WITHOUT_EFFECT} <= known
    assert set(ALIASES.values()) <= ours


def test_headrace_settings_are_separate_from_kafkas() -> None:
    own = {s.keyword for s in catalogue().values() if isinstance(s.named, HeadraceName)}

    assert own == {
        *("work_dir", "embedded_path", "trigger", "fail_on_data_loss", "max_record_bytes"),
        *("server_token_file", "server_tls_certificate", "server_tls_key"),
        *("spark", "app_configs"),
    }


@pytest.mark.parametrize("keyword", catalogue())
def test_a_default_is_a_value_that_could_be_given(keyword: str) -> None:
    setting = catalogue()[keyword]

    if setting.default is not None:
        assert setting.value.read(setting.default, keyword) == setting.default


def test_the_defaults_are_kafkas_except_for_the_guarantee() -> None:
    config = StreamsConfig()

    assert config.application_id is None
    assert config.bootstrap_servers is None
    assert config.processing_guarantee == "exactly_once_v2"
    assert config.commit_interval == timedelta(milliseconds=100)
    assert config.statestore_cache_max_bytes == 10_485_760
    assert config.max_task_idle == timedelta(0)
    assert config.topology_optimization == ()
    assert config.default_dsl_store == "rocksdb"
    assert config.deserialization_exception_handler == "fail"
    assert config.default_timestamp_extractor == FailOnInvalidTimestamp()
    assert config.replication_factor == -1
    assert config.state_dir == Path(".headrace")
    assert config.trigger == "continuous"
    assert config.given == {}


def test_the_commit_interval_follows_the_guarantee_unless_it_is_given() -> None:
    relaxed = StreamsConfig(processing_guarantee="at_least_once")

    assert relaxed.commit_interval == timedelta(seconds=30)
    assert relaxed.with_settings(commit_interval="2s").commit_interval == timedelta(seconds=2)
    assert relaxed.with_settings(
        processing_guarantee="exactly_once_v2"
    ).commit_interval == timedelta(milliseconds=100)


def test_keywords_are_typed_settings() -> None:
    config = StreamsConfig(
        application_id="orders",
        bootstrap_servers=["one:9092", "two:9092"],
        commit_interval="1s",
        max_task_idle=-1,
        state_dir="/var/lib/orders",
        topology_optimization="all",
        trigger="10s",
        consumer={"max.poll.records": 500, "session.timeout.ms": "45s", "client.rack": None},
        spark={"spark.sql.shuffle.partitions": 4, "spark.ui.enabled": False},
    )

    assert config.bootstrap_servers == "one:9092,two:9092"
    assert config.commit_interval == timedelta(seconds=1)
    assert config.max_task_idle == timedelta(milliseconds=-1)
    assert config.state_dir == Path("/var/lib/orders")
    assert config.topology_optimization == OPTIMIZATIONS
    assert config.trigger == timedelta(seconds=10)
    assert config.consumer == {"max.poll.records": "500", "session.timeout.ms": "45000"}
    assert config.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}


def test_properties_are_kafkas_names_with_text_or_values() -> None:
    config = StreamsConfig.from_properties(
        {
            "application.id": "orders",
            "commit.interval.ms": "100",
            "task.timeout.ms": "1m",
            "max.task.idle.ms": -1,
            "statestore.cache.max.bytes": " 0 ",
            "ensure.explicit.internal.resource.naming": "TRUE",
            "fail.on.data.loss": "false",
            "trigger": "available_now",
            "default.dsl.store": "rocksDB",
            "topology.optimization": "merge.repartition.topics, reuse.ktable.source.topics",
            "consumer.max.poll.records": "500",
            "main.consumer.max.poll.records": 100,
            "topic.retention.ms": "7d",
            "client.tag.my_zone": "a",
            "spark.master": "local[2]",
        }
    )

    assert config == StreamsConfig(
        application_id="orders",
        commit_interval=100,
        task_timeout="1m",
        max_task_idle=-1,
        statestore_cache_max_bytes=0,
        ensure_explicit_internal_resource_naming=True,
        fail_on_data_loss=False,
        trigger="available_now",
        default_dsl_store="rocksdb",
        topology_optimization=["reuse.ktable.source.topics", "merge.repartition.topics"],
        consumer={"max.poll.records": 500},
        main_consumer={"max.poll.records": 100},
        topic={"retention.ms": 604_800_000},
        client_tag={"my_zone": "a"},
        spark={"spark.master": "local[2]"},
    )


def test_older_names_of_kafka_are_read_and_lose_against_the_newer() -> None:
    older = StreamsConfig.from_properties(
        {
            "default.deserialization.exception.handler": "LogAndContinueExceptionHandler",
            "cache.max.bytes.buffering": "5",
            "dsl.store.suppliers.class": "org.apache.kafka.streams.state."
            "BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
        }
    )
    both = StreamsConfig.from_properties(
        {"statestore.cache.max.bytes": "7", "cache.max.bytes.buffering": "5"}
    )

    assert older.deserialization_exception_handler == "continue"
    assert older.statestore_cache_max_bytes == 5
    assert older.default_dsl_store == "in_memory"
    assert both.statestore_cache_max_bytes == 7


def test_names_of_clients_need_no_prefix_and_lose_against_one() -> None:
    config = StreamsConfig.from_properties(
        {
            "consumer.auto.offset.reset": "latest",
            "auto.offset.reset": "earliest",
            "max.poll.records": 5,
            "linger.ms": "5ms",
            "ssl.cipher.suites": "x",
            "sasl.kerberos.service.name": "kafka",
        }
    )

    security = {"ssl.cipher.suites": "x", "sasl.kerberos.service.name": "kafka"}
    assert config.consumer == {
        "auto.offset.reset": "latest",
        "max.poll.records": "5",
        **security,
    }
    assert config.producer == {"linger.ms": "5", **security}
    assert config.admin == security


def test_settings_without_effect_are_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = StreamsConfig.from_properties({"application.id": "orders", "poll.ms": "100"})

    assert config == StreamsConfig(application_id="orders")
    assert caplog.messages == ["The setting poll.ms has no effect. Batches follow `trigger`."]


def test_a_config_is_a_value() -> None:
    config = StreamsConfig(application_id="orders", consumer={"a.b": 1}, commit_interval="1s")

    assert config == StreamsConfig(
        commit_interval=1000, application_id="orders", consumer={"a.b": "1"}
    )
    assert config != StreamsConfig(application_id="orders")
    assert hash(config) == hash(copy.deepcopy(config))
    assert pickle.loads(pickle.dumps(config)) == config
    assert pickle.loads(pickle.dumps(config)).given == config.given
    assert replace(config, application_id="other").application_id == "other"
    with pytest.raises(FrozenInstanceError):
        config.application_id = "other"  # type: ignore[misc]


def test_another_config_is_made_from_one_and_more_settings() -> None:
    config = StreamsConfig(application_id="orders", consumer={"a.b": 1, "c.d": 1})

    other = config.with_settings(commit_interval="1s", consumer={"c.d": 2})

    assert other.application_id == "orders"
    assert other.commit_interval == timedelta(seconds=1)
    assert other.consumer == {"a.b": "1", "c.d": "2"}
    assert config.consumer == {"a.b": "1", "c.d": "1"}
    assert list(other.given) == ["application_id", "commit_interval", "consumer"]


def test_none_puts_a_setting_back_to_its_default() -> None:
    config = StreamsConfig(application_id="orders", bootstrap_servers=None)

    assert "bootstrap_servers" not in config.given
    assert config.with_settings(application_id=None) == StreamsConfig()
    assert StreamsConfig.from_properties({"application.id": None}) == StreamsConfig()


def test_an_overlay_of_a_config_wins_only_where_it_has_values() -> None:
    code = StreamsConfig(application_id="orders", commit_interval="1s", producer={"acks": "1"})
    deployed = StreamsConfig(commit_interval="5s", producer={"linger.ms": 5}, trigger="1s")

    config = code.overlaid_by(deployed)

    assert config == StreamsConfig(
        application_id="orders",
        commit_interval="5s",
        producer={"acks": "1", "linger.ms": 5},
        trigger="1s",
    )


@pytest.mark.parametrize(
    "config",
    [
        StreamsConfig(application_id="orders", commit_interval="1s"),
        {"application.id": "orders", "commit.interval.ms": 1000},
    ],
)
def test_keywords_win_over_a_config_of_either_form(config: Any) -> None:
    assert merged(config, {"commit_interval": "5s"}) == StreamsConfig(
        application_id="orders", commit_interval="5s"
    )
    assert merged(config, {}).commit_interval == timedelta(seconds=1)


def test_there_may_be_keywords_alone() -> None:
    assert merged(None, {"application_id": "orders"}) == StreamsConfig(application_id="orders")


def test_a_config_of_another_type_is_one_more_problem() -> None:
    problems = problems_of(lambda: merged("orders", {"commit_interval": -1}))  # type: ignore[arg-type]

    assert problems == [
        "The config is of type str. Use a `StreamsConfig`, or a mapping of Kafka's dotted names.",
        "`commit_interval` is -1. Use 0ms or more.",
    ]


def test_where_to_start_is_checked_under_whatever_name_it_is_given() -> None:
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.merged(
            {"auto.offset.reset": "EARLIEST"}, {"main_consumer": {"auto.offset.reset": "newest"}}
        )

    remedy = "Use 'earliest', 'latest', 'none', or how far back to start, such as "
    assert caught.value.problems == [
        f"`consumer.auto.offset.reset` is 'EARLIEST'. {remedy}'by_duration:PT1H30M'.",
        f"`main.consumer.auto.offset.reset` is 'newest'. {remedy}'by_duration:PT1H30M'.",
    ]


def test_problems_of_mapping_and_keywords_are_in_one_error() -> None:
    problems = problems_of(lambda: merged({"commit.interval.ms": "x"}, {"task_timeout": "y"}))

    assert [text.split()[0] for text in problems] == ["`commit.interval.ms`", "`task_timeout`"]


def test_to_run_an_application_needs_its_id() -> None:
    assert StreamsConfig(application_id="orders").require_application_id() == "orders"
    assert problems_of(lambda: StreamsConfig().require_application_id()) == [
        "`application_id` is not set. Choose a name that no other application has."
    ]


def test_properties_make_the_same_config_again() -> None:
    config = StreamsConfig(
        application_id="orders",
        commit_interval="1s",
        trigger="10s",
        state_dir="state",
        topology_optimization="all",
        consumer={"max.poll.records": 5},
        client_tag={"zone": "a"},
        spark={"spark.master": "local"},
        default_key_serde=str,
        processing_exception_handler="continue",
        sasl_password="hunter2",
    )

    properties = config.properties()

    assert StreamsConfig.from_properties(properties) == config
    assert properties["commit.interval.ms"] == 1000
    assert properties["consumer.max.poll.records"] == "5"
    assert properties["spark.master"] == "local"
    assert properties["topology.optimization"] == ",".join(OPTIMIZATIONS)
    assert StreamsConfig(topology_optimization=()).properties() == {"topology.optimization": "none"}
    assert StreamsConfig(trigger="continuous").properties() == {"trigger": "continuous"}


def test_a_client_receives_only_its_own_settings() -> None:
    config = StreamsConfig(
        application_id="orders",
        bootstrap_servers="one:9092",
        security_protocol="SASL_SSL",
        sasl_password="hunter2",
        request_timeout="40s",
        consumer={"max.poll.records": 1, "fetch.min.bytes": 1},
        main_consumer={"max.poll.records": 2},
        producer={"acks": "all", "request.timeout.ms": "5s"},
    )

    shared = {
        "bootstrap.servers": "one:9092",
        "security.protocol": "SASL_SSL",
        "sasl.password": "hunter2",
        "request.timeout.ms": "40000",
    }
    consumer = {**shared, "fetch.min.bytes": "1"}
    assert config.client_settings("main.consumer") == {**consumer, "max.poll.records": "2"}
    assert config.client_settings("restore.consumer") == {**consumer, "max.poll.records": "1"}
    assert config.client_settings("global.consumer") == {**consumer, "max.poll.records": "1"}
    assert config.client_settings("producer") == {
        **shared,
        "acks": "all",
        "request.timeout.ms": "5000",
    }
    assert config.client_settings("admin") == shared


def test_a_config_prints_what_was_given_in_the_order_of_the_fields() -> None:
    config = StreamsConfig(commit_interval=1500, application_id="orders", fail_on_data_loss=False)

    assert repr(config) == str(config)
    assert repr(config) == (
        "StreamsConfig(application_id='orders', commit_interval='1s500ms', fail_on_data_loss=False)"
    )


def test_secrets_are_never_printed() -> None:
    config = StreamsConfig(
        application_id="orders",
        sasl_password="CANARY",
        ssl_key_password="CANARY",
        sasl_jaas_config='PlainLoginModule required username="u" password="CANARY";',
        consumer={"sasl.password": "CANARY", "ssl.key.pem": "CANARY", "max.poll.records": 5},
        producer={"schema.registry.url": "https://user:CANARY@registry"},
        spark={"spark.hadoop.fs.s3a.secret.key": "CANARY", "spark.ssl.keyPassword": "CANARY"},
    )

    shown = [config, config.given, config.properties(), config.consumer, config.spark]
    shown += [config.client_settings("main.consumer"), config.client_settings("producer")]
    for each in shown:
        assert "CANARY" not in f"{each} {each!r}"
    assert "'max.poll.records': '5'" in repr(config)
    assert config.sasl_password == "CANARY"
    assert config.consumer["sasl.password"] == "CANARY"


@pytest.mark.parametrize(
    "make",
    [
        lambda: StreamsConfig(sasl_password=["CANARY"]),  # type: ignore[arg-type]
        lambda: StreamsConfig(sasl_pasword="CANARY"),  # type: ignore[call-arg]
        lambda: StreamsConfig(consumer={"sasl_password": "CANARY"}),
        lambda: StreamsConfig(consumer={"sasl.password": ["CANARY"]}),
        lambda: StreamsConfig.from_properties({"sasl_password": "CANARY"}),
        lambda: StreamsConfig.from_properties({"ssl.key.pasword": ["CANARY"]}),
    ],
)
def test_a_problem_never_quotes_a_secret(make: Callable[[], object]) -> None:
    (first, *_) = problems_of(make)

    assert "CANARY" not in first


def test_every_problem_is_in_one_error() -> None:
    problems = problems_of(
        lambda: StreamsConfig(
            application_id="a/b",
            commit_interval="soon",
            consumer={"max_poll_records": 1, "session.timeout.ms": "x", "c.d": object()},
            spark={"spark.speculation": True},
            producer={"max.in.flight.requests.per.connection": 6},
        )
    )

    assert len(problems) == 7
    assert problems[2] == (
        "`consumer` has the name 'max_poll_records', but Kafka's names have dots. "
        "Write 'max.poll.records'."
    )
    assert problems[3].startswith("`consumer.session.timeout.ms` is 'x', which is not a duration.")
    assert problems[4].startswith("`consumer.c.d` is of type object. Use text, a number")
    assert problems[5].startswith("`producer` has 'max.in.flight.requests.per.connection' = 6, but")
    assert problems[6].startswith("`spark` has 'spark.speculation' = true, but")


def test_a_mapping_is_for_prefixed_settings_and_they_need_one() -> None:
    problems = problems_of(
        lambda: StreamsConfig(consumer="a=b", client_id={"a": 1})  # type: ignore[arg-type]
    )

    assert problems == [
        "`consumer` is of type str. Use a mapping of dotted names to values.",
        "`client_id` is {'a': 1}, which cannot be part of a topic or a path. "
        "Use 1 to 200 letters, digits, '.', '_' or '-'.",
    ]


def test_more_requests_in_flight_are_allowed_at_least_once() -> None:
    config = StreamsConfig(
        processing_guarantee="at_least_once",
        producer={"max.in.flight.requests.per.connection": "6"},
    )

    assert config.producer["max.in.flight.requests.per.connection"] == "6"


def test_prefixed_settings_are_a_mapping_that_does_not_change() -> None:
    settings = MaskedSettings({"b": "1", "a": "2"})

    assert list(settings) == ["b", "a"]
    assert len(settings) == 2
    assert settings.get("c") is None
    assert settings == {"a": "2", "b": "1"}
    assert hash(settings) == hash(MaskedSettings({"a": "2", "b": "1"}))
    with pytest.raises(TypeError):
        settings["a"] = "3"  # type: ignore[index]


def test_the_prefixes_are_those_of_kafka_and_spark() -> None:
    prefixes = {s.name for s in catalogue().values() if isinstance(s.value, Prefixed)}

    assert prefixes == {
        *("consumer.", "main.consumer.", "restore.consumer.", "global.consumer."),
        *("producer.", "admin.", "topic.", "client.tag.", "spark.", "any other name"),
    }
    assert not CONSUMER_NAMES & PRODUCER_NAMES


def test_certificate_and_key_of_the_server_need_each_other() -> None:
    config = StreamsConfig(
        application_id="app",
        server_token_file="token",
        server_tls_certificate="cert.pem",
        server_tls_key="key.pem",
    )

    assert config.server_tls_key == Path("key.pem")
    for settings in ({"server.tls.key": "a"}, {"server.tls.certificate": "a"}):
        with pytest.raises(ConfigError, match="need each other"):
            StreamsConfig.from_properties(settings)


def test_settings_know_whether_the_topics_are_on_kafka() -> None:
    assert StreamsConfig(bootstrap_servers="one:9092").uses_kafka
    assert not StreamsConfig(embedded_path="topics.db").uses_kafka
