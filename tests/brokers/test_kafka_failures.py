"""Errors of Kafka become our errors, in time and without secrets."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from headrace import (
    AuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    BufferExhaustedError,
    CommitFailedError,
    ConfigError,
    GroupNotEmptyError,
    ProducerFencedError,
    ProducerRecord,
    StreamsConfig,
    TopicExistsError,
    UnknownTopicError,
    UnstableOffsetsError,
)
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.kafka.admin import KafkaAdmin
from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.error_translation import Failures, error_of, unwrap_fatal_error
from headrace.brokers.kafka.settings import client_settings
from headrace.brokers.kafka.writing import KafkaWriter
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer, KafkaProducer
from tests.kafka_broker import PASSWORD, USER, RunningBroker, free_ports
from tests.unique_names import unique
from tests.waiting import PATIENCE, PATIENTLY, await_that

WRONG = "canary-wrong-password"


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def asked(log: Broker) -> list[Any]:
    partition = TopicPartition("orders", 0)
    return [
        log.list_topics,
        lambda: log.create_topic("orders"),
        lambda: log.append([ProducerRecord("orders", 0, 1, b"k", b"v")]),
        lambda: list(log.read(partition, 0, 1)),
        lambda: log.end_offsets([partition]),
        lambda: log.committed_offsets("group"),
        log.list_groups,
        log.transaction("id").__enter__,
        lambda: log.open_producer({}),
    ]


def test_a_broker_that_does_not_answer_raises_in_time(nobody: str) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=nobody, request_timeout="200ms"))

    for ask in asked(log):
        with pytest.raises(BrokerUnavailableError, match=nobody) as caught:
            ask()
        assert "bootstrap_servers" in str(caught.value)
    log.close()


def test_a_refused_connection_raises_with_its_reason() -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    log = open_log(StreamsConfig(bootstrap_servers=address, request_timeout="300ms"))

    with pytest.raises(BrokerUnavailableError, match=r"did not answer within 0\.3 s"):
        log.list_topics()

    def is_reported() -> bool:
        with pytest.raises(BrokerUnavailableError) as caught:
            log.list_topics()
        return "Connection refused" in str(caught.value)

    await_that(is_reported, "the reason")  # the client may learn it after the first request
    log.close()


def test_offsets_that_a_transaction_holds_back_have_an_error_of_their_own(
    kafka: RunningBroker,
) -> None:
    settings = {"bootstrap.servers": kafka.address}
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address))
    hurried = open_log(StreamsConfig(bootstrap_servers=kafka.address, request_timeout="3s"))
    log.create_topic("held-back")
    name = TopicPartition("held-back", 0)
    log.commit_offsets("held-back", {name: OffsetAndMetadata(1)})
    writer = Producer({**settings, "transactional.id": "holds-back"})
    writer.init_transactions()
    writer.begin_transaction()
    group = Consumer({**settings, "group.id": "held-back"}).consumer_group_metadata()
    writer.send_offsets_to_transaction([ClientPartition("held-back", 0, 2)], group)

    with pytest.raises(UnstableOffsetsError, match=r"'held-back' for 3 s.*find-hanging"):
        hurried.committed_offsets("held-back", [name])

    writer.commit_transaction()
    assert log.committed_offsets("held-back", [name]) == {name: OffsetAndMetadata(2)}
    log.close()
    hurried.close()


def test_a_client_logs_in(kafka: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": kafka.sasl_address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
    }
    log = open_log(StreamsConfig(**settings))
    log.create_topic("secured")

    with KafkaProducer(key=str, value=str, **settings) as producer:
        producer.send("secured", "k", "v").result(PATIENCE)
    with KafkaConsumer(key=str, value=str, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition("secured", 0)])
        records = consumer.poll(PATIENTLY)

    assert [record.value for record in records] == ["v"]
    assert PASSWORD not in caplog.text


def test_a_wrong_password_is_an_error_that_does_not_show_it(
    kafka: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = StreamsConfig(
        bootstrap_servers=kafka.sasl_address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=f'org.x.PlainLoginModule required username="{USER}" password="{WRONG}";',
        request_timeout="5s",
    )
    log = open_log(config)

    with pytest.raises(AuthorizationError, match="does not let this client") as caught:
        log.list_topics()

    assert "sasl_" in str(caught.value)
    assert WRONG not in f"{caught.value!r}{caught.value.__cause__!r}{log!r}{config!r}{caplog.text}"


def test_an_unknown_setting_of_the_client_is_named_without_its_value(kafka: RunningBroker) -> None:
    log = open_log(
        StreamsConfig(bootstrap_servers=kafka.address, admin={"no.such.thing": "canary"})
    )
    with pytest.raises(ConfigError, match=r"`no\.such\.thing` is no setting") as caught:
        log.list_topics()
    assert "canary" not in str(caught.value)

    log = open_log(
        StreamsConfig(bootstrap_servers=kafka.address, admin={"broker.address.family": "canary"})
    )
    with pytest.raises(ConfigError, match=r"`broker\.address\.family` has a value") as caught:
        log.list_topics()
    assert "canary" not in str(caught.value)


def test_the_settings_of_java_are_understood() -> None:
    settings = client_settings(
        "producer",
        {
            "bootstrap.servers": "a:1",
            "buffer.memory": "2048",
            "max.request.size": "5",
            "request.timeout.ms": "7",
            "linger.ms": "3",
            "transactional.id": "ours",
            "sasl.jaas.config": 'x.ScramLoginModule required username="u" password="p\\"q";',
        },
    )

    assert settings == {
        "bootstrap.servers": "a:1",
        "queue.buffering.max.kbytes": "2",
        "message.max.bytes": "5",
        "socket.timeout.ms": "7",
        "linger.ms": "3",
        "sasl.username": "u",
        "sasl.password": 'p"q',
    }


def test_a_newer_group_protocol_takes_no_settings_that_the_broker_decides() -> None:
    settings = client_settings(
        "consumer", {"group.protocol": "consumer", "session.timeout.ms": "5", "client.rack": "r"}
    )

    assert settings == {"group.protocol": "consumer", "client.rack": "r"}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ssl.truststore.location", "/canary.jks", "ssl_ca_location"),
        ("ssl.endpoint.identification.algorithm", "", '"none"'),
        ("sasl.jaas.config", 'com.sun.JndiLoginModule required url="canary";', "login module"),
        ("sasl.jaas.config", "canary", "login module"),
        ("sasl.jaas.config", 'PlainLoginModule required password="canary";', "no username"),
    ],
)
def test_settings_that_are_dangerous_or_java_only_are_refused(
    name: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        client_settings("admin", {name: value})

    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._TRANSPORT, BrokerUnavailableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (KafkaError._SSL, AuthorizationError),
        (KafkaError._UNKNOWN_TOPIC, UnknownTopicError),
        (KafkaError._FENCED, ProducerFencedError),
        (KafkaError.ILLEGAL_GENERATION, CommitFailedError),
        (KafkaError.NON_EMPTY_GROUP, GroupNotEmptyError),
        (KafkaError.TOPIC_ALREADY_EXISTS, TopicExistsError),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, BrokerUnavailableError),
        (KafkaError.POLICY_VIOLATION, BrokerError),
    ],
)
def test_each_code_of_the_client_has_an_error(code: int, expected: type[Exception]) -> None:
    failures = Failures("a:1", 1)

    error = failures.streams_error_from(
        KafkaException(KafkaError(code)), "do that", topic="t", group="g"
    )

    assert type(error) is expected


def test_the_last_error_of_the_client_explains_a_timeout() -> None:
    failures = Failures("a:1", 1)
    failures.note(KafkaError(KafkaError._AUTHENTICATION, "bad login"))
    failures.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))

    error = failures.streams_error_from(
        KafkaException(KafkaError(KafkaError._TIMED_OUT)), "list topics"
    )

    assert isinstance(error, AuthorizationError)
    assert "bad login" in str(error)


def test_a_retriable_error_is_retried() -> None:
    failures = Failures("a:1", 10)
    codes = iter(
        [
            KafkaError.NOT_COORDINATOR,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError._TRANSPORT,
            KafkaError._DESTROY_BROKER,
        ]
    )

    def ask(_: float) -> str:
        for code in codes:
            raise KafkaException(KafkaError(code))
        return "answer"

    assert failures.call_with_retries(ask) == "answer"


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError.POLICY_VIOLATION),
        KafkaError(KafkaError._TIMED_OUT, "fatal", fatal=True),
        KafkaError(KafkaError._TIMED_OUT, "to abort", txn_requires_abort=True),
    ],
    ids=["refused", "fatal", "to-abort"],
)
def test_a_permanent_error_is_raised_at_once(error: KafkaError) -> None:
    errors = iter([error])

    def ask(_: float) -> None:
        raise KafkaException(next(errors))

    with pytest.raises(KafkaException):
        Failures("a:1", 60).call_with_retries(ask)


def test_a_broker_that_refused_to_let_a_client_in_is_not_asked_again() -> None:
    failures = Failures("a:1", 60)
    failures.note(KafkaError(KafkaError._AUTHENTICATION, "bad login"))
    errors = iter([KafkaError(KafkaError._TRANSPORT)])

    def ask(_: float) -> None:
        raise KafkaException(next(errors))

    with pytest.raises(KafkaException):
        failures.call_with_retries(ask)


def test_an_error_that_outlasts_the_timeout_is_raised() -> None:
    def ask(_: float) -> None:
        raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))

    with pytest.raises(KafkaException):
        Failures("a:1", 0).call_with_retries(ask)


def test_a_fatal_error_comes_out_as_itself() -> None:
    def interrupted(cause: Exception | None) -> None:
        with unwrap_fatal_error():
            raise SystemError from cause

    with pytest.raises(KafkaException):
        interrupted(KafkaException(KafkaError(KafkaError._FENCED)))
    with pytest.raises(SystemError):
        interrupted(None)


def test_an_exception_without_an_error_is_one_too() -> None:
    assert error_of(KafkaException("odd")).str() == "odd"


class FullProducer:
    """A queue that has room only after `polls` polls."""

    def __init__(self, polls: int) -> None:
        self.polls = polls
        self.produced: list[Any] = []

    def produce(self, *given: Any, **_: Any) -> None:
        if self.polls > 0:
            raise BufferError
        self.produced.append(given)

    def poll(self, _: float) -> None:
        self.polls -= 1


def test_a_full_queue_is_waited_for(kafka: RunningBroker) -> None:
    log: Any = open_log(StreamsConfig(bootstrap_servers=kafka.address, request_timeout="20s"))
    writer: KafkaWriter = log._writer
    producer: Any = FullProducer(3)

    writer.produce(producer, ProducerRecord("t", 0, 5, b"k", b"v"), lambda *_: None)

    assert [given[:4] for given in producer.produced] == [("t", b"v", b"k", 0)]


def test_a_queue_that_stays_full_is_an_error(kafka: RunningBroker) -> None:
    log: Any = open_log(StreamsConfig(bootstrap_servers=kafka.address, request_timeout="1ms"))
    producer: Any = FullProducer(1_000_000)

    with pytest.raises(BufferExhaustedError, match=r"Raise `buffer\.memory` or `max\.block\.ms`"):
        log._writer.produce(producer, ProducerRecord("t", 0, 5, b"k", b"v"), lambda *_: None)


def test_a_producer_waits_for_its_full_buffer_for_max_block(
    kafka: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address))
    topic = unique("full")
    log.create_topic(topic)
    session = log.open_producer({"max.block.ms": "10"})
    assert session.partition_count(topic) == 1
    monkeypatch.setattr(session, "_producer", FullProducer(1_000_000))

    with pytest.raises(BufferExhaustedError, match=r"for 0\.01 s \(`max\.block\.ms`\)"):
        session.send(ProducerRecord(topic, 0, 5, b"k", b"v"), lambda *_: None)

    monkeypatch.undo()
    session.close()


class ForgetfulProducer:
    """Writes with a real client, which does not know the offset of every second record.

    A broker that has served a request before, and has forgotten the offsets, answers like that.
    """

    def __init__(self, real: Any) -> None:
        self._real = real
        self._delivered = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def produce(self, topic: str, value: Any, key: Any, partition: int, report: Any, *rest: Any,
                **_: Any) -> None:  # fmt: skip
        def forgetting(error: Any, message: Any) -> None:
            self._delivered += 1
            report(error, message if self._delivered % 2 else _WithoutOffset(message))

        self._real.produce(topic, value, key, partition, forgetting, *rest)


class _WithoutOffset:
    def __init__(self, message: Any) -> None:
        self.topic, self.partition = message.topic, message.partition

    def offset(self) -> None:
        return None


def test_an_offset_that_the_client_does_not_know_is_reported_as_unknown(
    kafka: RunningBroker,
) -> None:
    log: Any = open_log(StreamsConfig(bootstrap_servers=kafka.address))
    topic = unique("forgotten")
    log.create_topic(topic)
    records = [ProducerRecord(topic, 0, 5, b"k", b"%d" % number) for number in range(4)]
    log.append(records[:1])
    log._writer._opened = ForgetfulProducer(log._writer._opened)

    written = log.append(records)

    assert [each.offset for each in written] == [1, -1, 3, -1]
    session: Any = log.open_producer({})
    session._producer = ForgetfulProducer(session._producer)
    reported: list[Any] = []
    for record in records[:2]:
        session.send(record, lambda where, error: reported.append((where.offset, error)))
    session.flush()
    assert reported == [(5, None), (-1, None)]
    session.close()
    log.close()


def test_an_error_about_more_replicas_than_brokers_names_the_setting(
    kafka: RunningBroker,
) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address))

    with pytest.raises(BrokerError) as caught:
        log.create_topic("too-safe", settings={"replication.factor": "3"})

    assert "create topic 'too-safe'" in str(caught.value)
    assert "`replication.factor` is 3" in str(caught.value)
    assert "too-safe" not in log.list_topics()
    log.close()


def test_the_timestamp_0_is_written_as_1_and_never_as_now(kafka: RunningBroker) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address, request_timeout="20s"))
    log.create_topic("epoch")

    log.append([ProducerRecord("epoch", 0, 0, b"k", b"v")])

    ((read,),) = log.read(TopicPartition("epoch", 0), 0, 1)
    assert read.timestamp == 1
    log.close()


def test_a_range_behind_the_end_is_an_error(kafka: RunningBroker) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address, request_timeout="20s"))
    log.create_topic("short")
    log.append([ProducerRecord("short", 0, 1, b"k", b"v")])

    with pytest.raises(BrokerError, match="lies behind the end"):
        list(log.read(TopicPartition("short", 0), 5, 6))
    log.close()


def test_a_range_that_never_fills_times_out(kafka: RunningBroker) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address, request_timeout="20s"))
    log.create_topic("empty")
    hasty = open_log(StreamsConfig(bootstrap_servers=kafka.address, request_timeout="500ms"))

    with pytest.raises(BrokerUnavailableError, match="partition 0, from offset 0"):
        list(hasty.read(TopicPartition("empty", 0), 0, 1))
    hasty.close()
    log.close()


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again(kafka: RunningBroker) -> None:
    topic = unique("orders")
    config = StreamsConfig(application_id="application", bootstrap_servers=kafka.address)
    admin = KafkaAdmin(ClientFactory(config))

    def answers() -> str:
        unknown, known = Future[str](), Future[str]()
        unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        known.set_result("known")
        given = iter((unknown, known))
        return admin.request("describe it", lambda _admin, _seconds: next(given), topic=topic)

    with pytest.raises(UnknownTopicError):
        answers()
    admin.has_created(topic)
    assert answers() == "known"
    admin.has_deleted(topic)
    with pytest.raises(UnknownTopicError):
        answers()
