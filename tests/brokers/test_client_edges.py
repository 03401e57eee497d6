"""Corners of the clients that a healthy broker does not show; no broker is asked."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from headrace import (
    AuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    CommitFailedError,
    ConfigError,
    ConsumerRecord,
    OffsetOutOfRangeError,
    ProducerFencedError,
    ProducerRecord,
    RecordRefusedError,
    StreamsConfig,
    UnknownTopicError,
)
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.kafka import KafkaLog
from headrace.brokers.kafka.transactions import commit_transaction
from headrace.brokers.sessions import RebalanceListener
from headrace.clients import ConsumerRecords, KafkaConsumer, KafkaHandler, KafkaProducer
from tests.waiting import PATIENTLY, await_that

PARTITION = TopicPartition("orders", 0)


class Opened(Protocol):
    """Opens a log over a bad client."""

    def __call__(self, client: BadClient, timeout: str = ...) -> KafkaLog: ...


class BadClient:
    """Answers each call with the next prepared answer; an exception is raised."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(*_: object, **__: object) -> Any:
            self.calls.append(name)
            prepared = self.answers.get(name, [None])
            given = prepared.pop(0) if len(prepared) > 1 else prepared[0]
            if isinstance(given, BaseException):
                raise given
            return given

        return answer


def failure(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


@pytest.fixture
def kafka_log(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """A log whose producers and consumers are all the same bad client."""

    def opened(client: BadClient, timeout: str = "100ms") -> KafkaLog:
        log = KafkaLog(StreamsConfig(bootstrap_servers="127.0.0.1:1", request_timeout=timeout))
        for kind in ("producer", "consumer", "admin"):
            monkeypatch.setattr(log._client_factory, kind, lambda *_, **__: client)
        return log

    return opened


def topic_metadata(error: KafkaError | None, partitions: int) -> Any:
    return SimpleNamespace(
        topics={"orders": SimpleNamespace(error=error, partitions=dict.fromkeys(range(partitions)))}
    )


def in_sync(nodes: int) -> Any:
    """Return a client's metadata of a topic with some of its three replicas in sync."""
    partition = SimpleNamespace(id=0, replicas=[1, 2, 3], isrs=list(range(nodes)))
    return SimpleNamespace(topics={"orders": SimpleNamespace(partitions={0: partition})})


def know_topic(log: KafkaLog, *, partitions: int) -> None:
    """Make a log use the topic for one that it asked about."""
    log._topics.counts["orders"] = partitions
    log._writer._limits["orders"] = 1_000_000


def test_a_topic_that_is_being_made_is_waited_for(kafka_log: Opened) -> None:
    missing = topic_metadata(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), 0)
    client = BadClient(list_topics=[missing, missing, topic_metadata(None, 3)])

    producer = kafka_log(client, "60s").open_producer({})
    count = producer.partition_count("orders")
    producer.close()

    assert count == 3


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (topic_metadata(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), 0), UnknownTopicError),
        (topic_metadata(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), 0), AuthorizationError),
        (topic_metadata(None, 0), BrokerUnavailableError),
    ],
)
def test_a_topic_that_is_not_made_is_reported(
    kafka_log: Opened, answer: Any, expected: type[Exception]
) -> None:
    producer = kafka_log(BadClient(list_topics=[None, answer])).open_producer({})

    with pytest.raises(expected):
        producer.partition_count("orders")
    producer.close()


def test_a_producer_without_topic_metadata_raises(kafka_log: Opened) -> None:
    client = BadClient(list_topics=[None, failure(KafkaError._TRANSPORT)])
    producer = kafka_log(client).open_producer({})

    with pytest.raises(BrokerUnavailableError, match="describe topic 'orders'"):
        producer.partition_count("orders")
    producer.close()


@pytest.mark.parametrize("factor", ["three", "2.5", ""])
def test_a_replication_factor_that_is_no_number_is_refused(kafka_log: Opened, factor: str) -> None:
    client = BadClient()

    with pytest.raises(BrokerError, match=r"`replication.factor` of topic 'orders' is"):
        kafka_log(client).create_topic("orders", settings={"replication.factor": factor})
    assert client.calls == []


def test_records_that_stay_in_the_queue_are_reported(kafka_log: Opened) -> None:
    silent = kafka_log(BadClient(flush=[3], list_topics=[in_sync(3)])).open_producer({})
    failing = kafka_log(BadClient(flush=[failure(KafkaError._ALL_BROKERS_DOWN), 0])).open_producer(
        {}
    )

    for producer, reason in ((silent, "; 3 are waiting"), (failing, "write records")):
        with pytest.raises(BrokerUnavailableError, match=reason):
            producer.flush(1)
    with pytest.raises(BrokerUnavailableError):
        silent.close(1)
    failing.close()


def test_records_without_a_delivery_report_get_the_fatal_error(kafka_log: Opened) -> None:
    client = BadClient(
        flush=[failure(KafkaError._FENCED), 0], list_topics=[topic_metadata(None, 1)]
    )
    log = kafka_log(client)
    know_topic(log, partitions=1)
    producer = log.open_producer({"transactional.id": "mine"})
    reports: list[Any] = []
    producer.send(ProducerRecord("orders", 0, 1, b"k", b"v"), lambda *given: reports.append(given))

    with pytest.raises(ProducerFencedError) as caught:
        producer.flush(1)
    producer.close()

    assert reports == [(None, caught.value)]


def test_the_thread_of_a_producer_outlives_a_failed_poll(kafka_log: Opened) -> None:
    client = BadClient(poll=[failure(KafkaError._FATAL), None], flush=[0])
    producer = kafka_log(client).open_producer({})

    await_that(lambda: client.calls.count("poll") >= 3, "three polls", found=lambda: client.calls)
    producer.close()


def test_a_transaction_that_times_out_retries_and_then_raises(kafka_log: Opened) -> None:
    retriable = KafkaException(KafkaError(KafkaError._TIMED_OUT, "late", retriable=True))
    log = kafka_log(BadClient(commit_transaction=[retriable, retriable, None]), "60s")
    commit_transaction(log._client_factory.producer(), log._client_factory)
    hopeless = kafka_log(BadClient(commit_transaction=[retriable]))

    with pytest.raises(KafkaException):
        commit_transaction(hopeless._client_factory.producer(), hopeless._client_factory)


def test_a_producer_that_cannot_open_its_id_raises(kafka_log: Opened) -> None:
    log = kafka_log(BadClient(init_transactions=[failure(KafkaError._TRANSPORT)]))

    with pytest.raises(BrokerUnavailableError, match="transactional id 'mine'"):
        log.transaction("mine").__enter__()


class LateRefusal(BadClient):
    """Reports the records that it purged first, and the refused one with a later call."""

    def __init__(self) -> None:
        super().__init__(list_topics=[topic_metadata(None, 1)])
        self.reports: list[Callable[..., None]] = []

    def produce(self, *arguments: Any) -> None:
        self.reports.append(arguments[4])

    def flush(self, _seconds: float) -> int:
        if self.reports:
            is_last = len(self.reports) == 1
            code = KafkaError.MSG_SIZE_TOO_LARGE if is_last else KafkaError._PURGE_QUEUE
            self.reports.pop()(KafkaError(code), None)
        return len(self.reports)


def test_a_refusal_is_the_reason_although_it_is_reported_late(
    kafka_log: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = kafka_log(LateRefusal())
    log._writer.topics.counts["orders"] = 1
    monkeypatch.setattr(log._writer, "limit", lambda _topic: 1_000)
    records = [ProducerRecord("orders", 0, 1, key, b"v") for key in (b"large", b"small")]

    with (
        pytest.raises(RecordRefusedError) as caught,
        log.transaction("mine", timeout_ms=1_000) as transaction,
    ):
        transaction.append(records)

    assert caught.value.record.key == b"large"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (in_sync(3), r"no record for 0\.1 s; 2 are waiting\. Check that all brokers run"),
        (in_sync(1), "in sync: partition 0 of 'orders' has 1 of 3"),
        (failure(KafkaError._TRANSPORT), "; 2 are waiting"),
    ],
)
def test_what_is_not_written_in_time_is_purged_and_reported(
    kafka_log: Opened, answer: Any, reason: str
) -> None:
    client = BadClient(flush=[2], list_topics=[None, answer])
    log = kafka_log(client)
    know_topic(log, partitions=1)

    with pytest.raises(BrokerUnavailableError, match=reason):
        log.append([ProducerRecord("orders", 0, 1, b"k", b"v")])

    assert "purge" in client.calls


def test_a_fatal_error_of_the_client_is_reported(kafka_log: Opened) -> None:
    log = kafka_log(BadClient(flush=[failure(KafkaError._AUTHENTICATION), 0]))
    know_topic(log, partitions=1)

    with pytest.raises(AuthorizationError):
        log.append([ProducerRecord("orders", 0, 1, b"k", b"v")])
    log.close()


def test_a_partition_that_the_client_never_learns_of_is_reported(kafka_log: Opened) -> None:
    log = kafka_log(BadClient(produce=[failure(KafkaError._UNKNOWN_PARTITION)]))
    know_topic(log, partitions=5)

    with pytest.raises(UnknownTopicError, match="partition 4"):
        log.append([ProducerRecord("orders", 4, 1, b"k", b"v")])


def test_a_seek_is_retried_until_the_partition_is_read(kafka_log: Opened) -> None:
    client = BadClient(seek=[failure(KafkaError._STATE), failure(KafkaError._STATE), None])

    kafka_log(client, "60s").open_consumer(None, {}).seek(PARTITION, 5)

    assert client.calls.count("seek") == 3
    hopeless = kafka_log(BadClient(seek=[failure(KafkaError._STATE)])).open_consumer(None, {})
    with pytest.raises(BrokerError, match="seek in topic 'orders'"):
        hopeless.seek(PARTITION, 5)


class BadMessage:
    """A message that is an error."""

    def __init__(self, code: int) -> None:
        self.code = code

    def error(self) -> KafkaError:
        return KafkaError(self.code)

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


def test_a_consumer_gets_over_what_passes_and_raises_the_rest(kafka_log: Opened) -> None:
    def polled(code: int) -> Any:
        client = BadClient(poll=[BadMessage(code), None], consume=[[]])
        return kafka_log(client).open_consumer("g", {}).poll(1, 10)

    assert polled(KafkaError._TRANSPORT) == []
    assert polled(KafkaError._PARTITION_EOF) == []
    with pytest.raises(OffsetOutOfRangeError):
        polled(KafkaError._AUTO_OFFSET_RESET)
    with pytest.raises(AuthorizationError):
        polled(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(UnknownTopicError):
        polled(KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_a_refused_commit_of_a_consumer_raises(kafka_log: Opened) -> None:
    answer = SimpleNamespace(error=KafkaError(KafkaError.ILLEGAL_GENERATION))
    consumer = kafka_log(BadClient(commit=[[answer]])).open_consumer("g", {})

    with pytest.raises(CommitFailedError, match="'g'"):
        consumer.commit({PARTITION: OffsetAndMetadata(1)})


def answered(value: Any = None, *, error: int | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(failure(error))
    return future


def described(partitions: int, leader: object) -> dict[str, Future[Any]]:
    each = SimpleNamespace(leader=leader)
    return {"orders": answered(SimpleNamespace(partitions=[each] * partitions))}


def test_a_topic_that_never_becomes_ready_is_reported(kafka_log: Opened) -> None:
    client = BadClient(
        create_topics=[{"orders": answered()}],
        describe_topics=[
            {"orders": answered(error=KafkaError.UNKNOWN_TOPIC_OR_PART)},
            described(1, None),
        ],
        list_topics=[SimpleNamespace(topics={})],
    )

    with pytest.raises(BrokerUnavailableError, match="agreed to create topic 'orders'"):
        kafka_log(client).create_topic("orders")


def test_offsets_that_cannot_be_listed_are_reported(kafka_log: Opened) -> None:
    client = BadClient(
        describe_topics=[described(1, object())],
        list_offsets=[{PARTITION: answered(error=KafkaError.TOPIC_AUTHORIZATION_FAILED)}],
    )

    with pytest.raises(AuthorizationError, match="list offsets"):
        kafka_log(client).end_offsets([PARTITION])


def test_an_answer_that_does_not_come_is_reported(kafka_log: Opened) -> None:
    log = kafka_log(BadClient(list_consumer_groups=[Future()]))
    log._client_factory.failures.timeout = -0.9

    with pytest.raises(BrokerUnavailableError, match="list its groups"):
        log.list_groups()


def test_only_the_groups_asked_about_last_keep_a_client(kafka_log: Opened) -> None:
    log = kafka_log(BadClient(committed=[[]]))

    for number in range(20):
        assert log.committed_offsets(f"g-{number}", [PARTITION]) == {}

    assert list(log._groups._opened) == [f"g-{number}" for number in range(4, 20)]


def test_a_log_keeps_four_consumers_for_later_ranges(kafka_log: Opened) -> None:
    message = Message(topic="orders", partition=0, offset=0, value=b"a", timestamp=(1, 5))
    client = BadClient(list_topics=[topic_metadata(None, 1)], poll=[message], consume=[[]])
    log = kafka_log(client)

    readers = [log.read_ranges([(PARTITION, 0, 1)]) for _ in range(6)]
    for reader in readers:
        next(reader)
    assert [len(list(reader)) for reader in readers] == [0] * 6

    assert client.calls.count("close") == 2
    log.close()
    assert client.calls.count("close") == 6


def test_a_group_that_newer_brokers_do_not_know_has_no_members(kafka_log: Opened) -> None:
    client = BadClient(
        describe_consumer_groups=[{"g": answered(error=KafkaError.GROUP_ID_NOT_FOUND)}]
    )

    assert kafka_log(client).describe_group("g") == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "topics.db"
    log = EmbeddedLog(file)
    log.create_topic("orders", partitions=2)
    log.append([ProducerRecord("orders", 0, 1, b"k", b"%d" % number) for number in range(3)])
    log.close()
    return file


def test_kafka_without_its_client_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headrace.brokers.kafka", None)

    with pytest.raises(ConfigError, match=r"pip install 'headrace\[kafka\]'"):
        open_log(StreamsConfig(bootstrap_servers="127.0.0.1:1"))


def test_records_print_their_counts() -> None:
    records = ConsumerRecords([ConsumerRecord("orders", 1, 5, 0, None, None)])

    assert repr(records) == "ConsumerRecords({'orders-1': 1})"


def test_a_failed_commit_without_a_callback_is_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with KafkaConsumer(key=str, value=str, group_id="g", embedded_path=path) as consumer:
        consumer.commit_async({TopicPartition("orders", 99): 1})
        consumer.poll(0)

    assert "Offsets were not committed: There is no partition 99 in 'orders'" in caplog.text


def test_a_partition_can_be_paused_before_it_is_read(path: Path) -> None:
    settings: dict[str, Any] = {"embedded_path": path, "auto_offset_reset": "earliest"}
    with KafkaConsumer(key=str, value=str, **settings) as consumer:
        consumer.assign([PARTITION])
        consumer.pause([PARTITION])
        during = list(consumer.poll(0))
        consumer.resume([PARTITION])

        assert during == []
        assert len(consumer.poll(PATIENTLY)) == 3


def test_an_expelled_consumer_loses_its_partitions_and_rejoins(path: Path) -> None:
    settings: dict[str, Any] = {"embedded_path": path, "auto_offset_reset": "earliest"}
    lost: list[TopicPartition] = []
    revoked: list[TopicPartition] = []
    with KafkaConsumer(
        key=str,
        value=str,
        group_id="g",
        max_poll_interval="2s",  # far longer than joining again and closing take
        heartbeat_interval="5ms",
        **settings,
    ) as consumer:
        consumer.subscribe(
            ["orders"],
            on_revoked=lambda _, partitions: revoked.extend(partitions),
            on_lost=lambda _, partitions: lost.extend(partitions),
        )
        consumer.poll(0)
        log = EmbeddedLog(path)
        await_that(
            lambda: not log.describe_group("g"),
            "the consumer to be expelled",
            found=lambda: log.describe_group("g"),
        )
        consumer.poll(0)
        again = consumer.assignment()

    assert lost == [PARTITION, TopicPartition("orders", 1)]
    assert again == frozenset(lost)
    assert revoked == lost


def test_subscribing_again_releases_the_old_partitions(path: Path) -> None:
    settings: dict[str, Any] = {"embedded_path": path, "auto_offset_reset": "earliest"}
    revoked: list[TopicPartition] = []
    log = EmbeddedLog(path)
    with KafkaConsumer(key=str, value=str, group_id="g", **settings) as consumer:
        consumer.subscribe(["orders"], on_revoked=lambda _, given: revoked.extend(given))
        consumer.poll(PATIENTLY)
        consumer.subscribe(["others"])
        consumer.poll(0)

        assert revoked == [PARTITION, TopicPartition("orders", 1)]
        assert consumer.assignment() == frozenset()
    assert log.committed_offsets("g")[PARTITION] == OffsetAndMetadata(3)
    log.close()


def test_a_consumer_whose_group_went_on_still_closes(path: Path) -> None:
    settings: dict[str, Any] = {"embedded_path": path, "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer(
        key=str, value=str, group_id="g", session_timeout="1ms", heartbeat_interval="1h", **settings
    )
    consumer.subscribe(["orders"])
    consumer.poll(PATIENTLY)
    log = EmbeddedLog(path)
    other = log.open_consumer("g", {})
    time.sleep(0.002)
    other.subscribe(["orders"], _ignoring(log))
    other.poll(0, 1)

    consumer.close()
    other.close()

    assert log.committed_offsets("g") == {}
    log.close()


def test_the_handler_leaves_out_what_headrace_logs_and_reports_failures(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = KafkaHandler("orders", embedded_path=path)
    sent: list[Any] = []

    def send(*given: Any, **_: Any) -> None:
        sent.append(given)
        raise ZeroDivisionError

    monkeypatch.setattr(handler._producer, "send", send)
    for name in ("headrace.brokers", "concurrent.futures", "shop"):
        handler.handle(logging.makeLogRecord({"name": name, "msg": "text"}))
    handler.close()

    assert sent == [("orders", b"shop", "text")]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_two_producers_may_make_the_same_topic(path: Path) -> None:
    log = EmbeddedLog(path)
    producers = [log.open_producer({}) for _ in range(4)]
    counts: list[int] = []

    threads = [
        threading.Thread(target=lambda p=producer: counts.append(p.partition_count("new")))
        for producer in producers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for producer in producers:
        producer.close()
    log.close()

    assert counts == [1, 1, 1, 1]


def test_a_negative_timestamp_is_refused(path: Path) -> None:
    with KafkaProducer(key=str, value=str, embedded_path=path) as producer:
        error = producer.send("orders", "k", "v", timestamp=-1).exception(10)

    assert "timestamp is negative" in str(error)


def _ignoring(log: EmbeddedLog) -> Any:
    return RebalanceListener(log.beginning_offsets, lambda _: None, lambda _: None)
