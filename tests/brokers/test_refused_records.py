"""Records that a topic is too small for, and those that only look so in a batch."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from headrace import (
    AuthorizationError,
    BrokerError,
    ProducerRecord,
    RecordRefusedError,
    StreamsBuilder,
    StreamsConfig,
)
from headrace.brokers import TopicPartition, open_log
from headrace.brokers.kafka.producer import KafkaProducerSession
from headrace.brokers.kafka.topics import KafkaTopics
from headrace.brokers.log import RawRecord
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaProducer
from headrace.records import Headers
from headrace.runtime.exchange.packing import TaskOutput, TaskReport, TopicRecords
from headrace.runtime.output.batch_writer import BatchWriter, PartitionResult
from headrace.runtime.planning.startup import prepare
from headrace.runtime.program import make_program
from tests.brokers.appending import assert_holds, record, values
from tests.brokers.consuming import Named, Settings
from tests.kafka_broker import RunningBroker
from tests.unit.runtime.planning import Planning
from tests.unit.runtime.writing import packed

LIMIT = 1_000
"""The maximum size of one request for a partition of a topic, in bytes."""
LARGE = b"x" * 2 * LIMIT


@pytest.fixture
def small(log: Broker, named: Named) -> str:
    """A topic that takes less than the client would like to send it."""
    name = named("small")
    log.create_topic(name, partitions=2, settings={"max.message.bytes": str(LIMIT)})
    return name


def is_refused(log: Broker, sent: ProducerRecord) -> bool:
    try:
        log.append([sent])
    except RecordRefusedError:
        return True
    return False


@pytest.mark.parametrize("headers", [(), [("trace", b"t" * 90), ("way", None)]])
def test_a_refusal_is_foreseen_exactly_by_size(log: Broker, small: str, headers: Any) -> None:
    lengths = range(LIMIT - 250, LIMIT)
    sent = [record(small, b"x" * length)._replace(headers=Headers(headers)) for length in lengths]

    foreseen = [index for index, _ in log.refusals(sent)]

    first = foreseen[0]
    assert foreseen == list(range(first, len(sent)))
    assert not is_refused(log, sent[first - 1])
    assert is_refused(log, sent[first])


@pytest.mark.parametrize(
    "bad", [{"timestamp": -1}, {"key": None}, {"timestamp": 253_402_300_799_000}, {"value": LARGE}]
)
def test_a_foreseen_refusal_comes_true(log: Broker, named: Named, bad: dict[str, Any]) -> None:
    name = named("compacted")
    settings = {"cleanup.policy": "compact", "max.message.bytes": str(LIMIT)}
    log.create_topic(name, settings=settings)
    good = record(name, b"a")
    sent = [good, good._replace(**bad), good]

    foreseen = {index: error.record for index, error in log.refusals(sent)}

    assert foreseen == ({1: sent[1]} if is_refused(log, sent[1]) else {})
    assert_holds(log, TopicPartition(name, 0), [] if foreseen else [b"a"])


COMPRESSIONS = ["gzip", "snappy", "lz4", "zstd"]


def compressing(settings: Settings, compression: str, **others: Any) -> Settings:
    return {**settings, "producer": {"compression.type": compression}, **others}


def half_random(length: int) -> bytes:
    """Return bytes that a compression shortens, but not by much: the same for each length."""
    return Random(length).randbytes(length // 2).ljust(length, b"x")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_refusal_of_a_compressed_record_is_foreseen_exactly(
    broker_settings: Settings, small: str, compression: str
) -> None:
    log = open_log(StreamsConfig(**compressing(broker_settings, compression)))
    try:
        lengths = range(LIMIT - 200, 2 * LIMIT, 7)
        sent = [record(small, half_random(length)) for length in lengths]

        foreseen = [index for index, _ in log.refusals(sent)]

        refused = [index for index, each in enumerate(sent) if is_refused(log, each)]
        assert foreseen == refused
        assert 0 < len(refused) < len(sent)
    finally:
        log.close()


def test_a_refused_record_is_foreseen_in_every_topic_and_beside_those_of_other_reasons(
    broker_settings: Settings, small: str, named: Named
) -> None:
    application = named("application")
    settings = compressing(broker_settings, "lz4", application_id=application)
    log = open_log(StreamsConfig(**settings))
    tight = named("tight")
    log.create_topic(tight, settings={"max.message.bytes": str(LIMIT // 2)})
    try:
        sent = [
            record(small, half_random(4 * LIMIT)),
            record(tight, half_random(LIMIT)),
            record(small, b"early", timestamp=-1),
            record(small, b"small", partition=1),
            record(tight, half_random(3 * LIMIT), timestamp=5),
            record(small, half_random(4 * LIMIT), partition=1),
        ]

        assert [index for index, _ in log.refusals(sent)] == [0, 1, 2, 4, 5]
        assert [error.record for _, error in log.refusals(sent)] == [
            sent[index] for index in (0, 1, 2, 4, 5)
        ]
        assert not any(topic.startswith(application) for topic in log.list_topics())
    finally:
        log.close()


def numbered(size: int) -> list[bytes]:
    return [(b"%d-" % number).ljust(size, b"x") for number in range(300)]


@pytest.mark.parametrize("size", [5, 47, 300, 470, 700, 900])
def test_small_records_are_accepted_however_many_there_are(
    log: Broker, small: str, size: int
) -> None:
    written = numbered(size)

    for _ in range(2):
        log.append([record(small, value) for value in written])

    assert_holds(log, TopicPartition(small, 0), written * 2)


@pytest.mark.parametrize("size", [5, 47, 300, 470, 700, 900])
def test_a_transaction_may_be_larger_than_what_a_topic_takes_at_once(
    log: Broker, topic: str, small: str, named: Named, size: int
) -> None:
    written = numbered(size)

    for _ in range(2):
        with log.transaction(named("writer")) as transaction:
            transaction.append(record(topic, value) for value in written)
            transaction.append(record(small, value) for value in written)
            transaction.append(record(small, value, partition=1) for value in written)

    for partition in (TopicPartition(topic, 0), TopicPartition(small, 0), TopicPartition(small, 1)):
        assert_holds(log, partition, written * 2)


def test_headers_count_too(log: Broker, small: str) -> None:
    headers = [("trace", b"t" * 90), ("ünder", None), ("way", b"")]
    written: list[RawRecord] = [(small, 0, 5, b"key", b"%d" % n, headers) for n in range(100)]

    log.append(written)

    assert_holds(log, TopicPartition(small, 0), [b"%d" % n for n in range(100)])


def test_a_topic_that_takes_less_than_before_is_written_to_again(log: Broker, named: Named) -> None:
    name = named("shrunk")
    log.create_topic(name)
    log.append([record(name, b"before")])
    log.delete_topic(name)
    log.create_topic(name, settings={"max.message.bytes": str(LIMIT)})
    written = numbered(100)

    def write() -> None:
        with log.transaction(named("writer")) as transaction:
            transaction.append(record(name, value) for value in written)

    try:
        write()
    except RecordRefusedError:
        write()

    assert_holds(log, TopicPartition(name, 0), written)


def test_the_large_one_of_many_is_named(log: Broker, small: str, named: Named) -> None:
    large = record(small, LARGE)
    some = [record(small, value) for value in numbered(90)]

    for _ in range(2):
        with (
            pytest.raises(RecordRefusedError) as caught,
            log.transaction(named("writer")) as transaction,
        ):
            transaction.append([*some, large, *some])
        assert caught.value.record == large

    assert_holds(log, TopicPartition(small, 0), [])


def test_a_refusal_is_raised_for_later_writes_too(
    log: Broker, topic: str, small: str, named: Named
) -> None:
    large = record(small, LARGE)

    def write() -> None:
        with log.transaction(named("writer")) as transaction:
            transaction.append([large])
            time.sleep(0.5)  # Kafka's client knows it by now, but has not been asked
            transaction.append([record(topic, b"behind")])

    with pytest.raises(RecordRefusedError) as caught:
        write()

    assert caught.value.record == large
    assert_holds(log, TopicPartition(topic, 0), [])


def test_a_producer_names_the_refused_record_before_its_report(
    log: Broker, topic: str, small: str, named: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaProducerSession, "_serve", lambda _: None)
    session = log.open_producer({"transactional.id": named("writer")})
    large = record(small, LARGE)

    def write() -> None:
        session.begin_transaction()
        session.send(large, lambda *_: None)
        time.sleep(0.5)
        session.send(record(topic, b"behind"), lambda *_: None)
        session.commit_transaction()

    with pytest.raises(RecordRefusedError) as caught:
        write()
    session.abort_transaction()
    session.close()

    assert caught.value.record == large


@pytest.mark.parametrize("size", [47, 470])
def test_a_producer_sends_no_more_at_once_than_a_topic_takes(
    log: Broker, broker_settings: Settings, small: str, size: int
) -> None:
    written = numbered(size)

    with KafkaProducer(key=bytes, value=bytes, linger="50ms", **broker_settings) as producer:
        sent = [producer.send(small, b"k", value, partition=1) for value in written]
        producer.flush()

    assert [each.result().offset for each in sent] == list(range(len(written)))
    assert_holds(log, TopicPartition(small, 1), written)


@pytest.mark.parametrize("behind", [3, 300])
def test_a_producer_names_the_refused_record_of_its_transaction(
    log: Broker, broker_settings: Settings, topic: str, small: str, named: Named, behind: int
) -> None:
    with KafkaProducer(
        key=bytes, value=bytes, transactional_id=named("writer"), **broker_settings
    ) as producer:

        def send() -> None:
            with producer.transaction():
                producer.send(topic, b"k", b"lost", partition=0)
                producer.send(small, b"k", LARGE, partition=0)
                for value in numbered(90)[:behind]:
                    producer.send(topic, b"k", value, partition=1)

        with pytest.raises(RecordRefusedError) as caught:
            send()
        with producer.transaction():
            producer.send(topic, b"k", b"again", partition=0)

    assert caught.value.record.value == LARGE
    assert_holds(log, TopicPartition(topic, 0), [b"again"])


def test_nothing_is_waited_for_behind_a_refusal(log: Broker, small: str, named: Named) -> None:
    session = log.open_producer({"transactional.id": named("writer"), "batch.size": "1"})
    session.begin_transaction()
    with suppress(BrokerError, RecordRefusedError):
        for value in [*numbered(90), LARGE, *numbered(90)]:
            session.send(record(small, value), lambda *_: None)

    session.flush()
    session.abort_transaction()
    session.close()

    assert_holds(log, TopicPartition(small, 0), [])


def write_what_is_left(log: Broker, records: list[ProducerRecord]) -> None:
    """Write records, and again what was not taken, without what is refused."""
    while records:
        try:
            log.append(records)
        except RecordRefusedError as error:
            records = [
                each
                for place, each in enumerate(records)
                if place not in error.taken and each != error.record
            ]
        else:
            return


@pytest.mark.parametrize(
    "refused", [{"value": LARGE}, {"value": b"early", "timestamp": -1}], ids=["broker", "client"]
)
def test_without_a_transaction_accepted_records_beside_a_refused_one_are_known(
    log: Broker, small: str, refused: dict[str, Any]
) -> None:
    before, behind, others = numbered(90), [b"behind-%d" % n for n in range(20)], numbered(50)

    write_what_is_left(
        log,
        [
            *(record(small, value, partition=1) for value in others),
            *(record(small, value) for value in before),
            record(small, **refused),
            *(record(small, value) for value in behind),
        ],
    )

    assert_holds(log, TopicPartition(small, 1), others)
    found = values(log, TopicPartition(small, 0))
    assert found[: len(before)] == before
    assert found[-len(behind) :] == behind
    # Records behind the refused one may be there twice, but never before those they follow.
    assert found in ([*before, *behind], [*before, *behind, *behind])


class Application:
    """An application that writes to one topic, and its dead letters to another."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        small: str,
        named: Named,
        guarantee: Literal["exactly_once_v2", "at_least_once"] = "exactly_once_v2",
    ) -> None:
        self.id, self.dead_letters = named("app"), named("letters")
        builder = StreamsBuilder()
        builder.stream(named("in"), key=str, value=int).to(small, name="writes-small")
        planning = Planning(
            builder.build(),
            folder,
            application_id=self.id,
            processing_guarantee=guarantee,
            production_exception_handler="continue",
            errors_dead_letter_queue_topic_name=self.dead_letters,
            **settings,
        )
        planning.log.create_topic(named("in"), partitions=2)
        planning.log.create_topic(self.dead_letters)
        layout, counts = prepare(
            planning.plan,
            planning.config,
            planning.log,
            planning.spark_checkpoint,
            lambda _tasks: 1,
        )
        self.program = make_program(
            planning.plan,
            planning.config,
            layout,
            partition_counts=counts,
            run_directory="",
            leader_epoch=0,
        )
        planning.log.close()

    def write(self, log: Broker, *outputs: TaskOutput) -> PartitionResult:
        writer = BatchWriter(self.program, log, partition=0, batch=4, query="query")
        return writer.write(packed(*outputs))


def outputs(task: int, topic: str, values: list[bytes]) -> TaskOutput:
    count = len(values)
    written = TopicRecords(
        topic, [task] * count, list(range(1, count + 1)), [b"key"] * count, list(values), None
    )
    return TaskOutput(task, 1, TaskReport(f"0_{task}", processed=count), [written])


def test_only_the_bad_one_of_a_batch_is_left_out(
    log: Broker, broker_settings: Settings, tmp_path: Path, small: str, named: Named
) -> None:
    application = Application(broker_settings, tmp_path, small, named)
    good = [b"%d" % number for number in range(1_000)]
    others = [b"other-%d" % number for number in range(50)]
    batch = (
        outputs(0, small, [*good[:400], LARGE, *good[400:]]),
        outputs(1, small, others),
    )

    note = application.write(log, *batch)
    again = application.write(log, *batch)

    assert_holds(log, TopicPartition(small, 0), good)
    assert_holds(log, TopicPartition(small, 1), others)
    assert_holds(log, TopicPartition(application.dead_letters, 0), [LARGE])
    assert note.refused == {small: 1}
    assert note.written == {small: 1_050, application.dead_letters: 1}
    assert (again.written, again.refused) == ({}, {})
    markers = log.committed_offsets(f"{application.id}-markers")
    assert {name.partition: found.offset for name, found in markers.items()} == {0: 5, 1: 5}


def test_all_bad_ones_of_a_batch_are_left_out(
    log: Broker, broker_settings: Settings, tmp_path: Path, small: str, named: Named
) -> None:
    application = Application(broker_settings, tmp_path, small, named)
    good = [b"%d" % number for number in range(100)]
    mixed = [
        value for each in good for value in ((each, LARGE) if int(each) % 10 == 0 else (each,))
    ]

    note = application.write(log, outputs(0, small, [LARGE, *mixed]), outputs(1, small, mixed))

    assert_holds(log, TopicPartition(small, 0), good)
    assert_holds(log, TopicPartition(small, 1), good)
    assert note.refused == {small: 21}
    assert note.written == {small: 200, application.dead_letters: 21}


def test_at_least_once_a_bad_one_lets_nothing_of_other_partitions_be_written_again(
    log: Broker, broker_settings: Settings, tmp_path: Path, small: str, named: Named
) -> None:
    application = Application(broker_settings, tmp_path, small, named, "at_least_once")
    good = [b"%d" % number for number in range(100)]

    note = application.write(log, outputs(0, small, [*good, LARGE]), outputs(1, small, good))

    assert_holds(log, TopicPartition(small, 0), good)
    assert_holds(log, TopicPartition(small, 1), good)
    assert_holds(log, TopicPartition(application.dead_letters, 0), [LARGE])
    assert note.written == {small: 200, application.dead_letters: 1}
    assert note.refused == {small: 1}


def test_the_dead_letter_names_the_refused_record(
    log: Broker, broker_settings: Settings, tmp_path: Path, small: str, named: Named
) -> None:
    application = Application(broker_settings, tmp_path, small, named)

    application.write(log, outputs(0, small, [b"a", LARGE]))

    assert_holds(log, TopicPartition(application.dead_letters, 0), [LARGE])
    ((dead_letter,),) = log.read(TopicPartition(application.dead_letters, 0), 0, 1)
    headers = dict(dead_letter.headers)
    assert dead_letter.key == b"key"
    assert headers["__streams.errors.exception"] == b"headrace.errors.RecordRefusedError"
    assert (
        f"{small!r}, partition 0, was refused"
        in (headers["__streams.errors.message"] or b"").decode()
    )


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_refused_records_of_a_compressed_batch_take_no_transaction_of_their_own(
    broker_settings: Settings,
    tmp_path: Path,
    small: str,
    named: Named,
    compression: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = compressing(broker_settings, compression)
    application = Application(settings, tmp_path, small, named)
    log = open_log(StreamsConfig(**settings))
    monkeypatch.setattr(log, "open_producer", lambda _: pytest.fail("A record is probed alone"))
    refused = [Random(number).randbytes(3 * LIMIT) for number in range(200)]
    good = [b"%d" % number for number in range(200)]
    # The embedded log compresses nothing, so only Kafka takes this one.
    if "bootstrap_servers" in settings:
        good.append(LARGE)
    mixed = [value for pair in zip(refused, good, strict=False) for value in pair]

    try:
        note = application.write(log, outputs(0, small, [*mixed, *good[200:]]))

        assert_holds(log, TopicPartition(small, 0), good)
        assert_holds(log, TopicPartition(application.dead_letters, 0), refused)
        assert note.refused == {small: 200}
    finally:
        log.close()


def test_without_the_right_to_create_topics_refused_compressed_records_are_found_one_by_one(
    kafka: RunningBroker,
    tmp_path: Path,
    named: Named,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = compressing({"bootstrap_servers": kafka.address}, "zstd")
    log = open_log(StreamsConfig(**settings))
    small = named("small")
    log.create_topic(small, partitions=2, settings={"max.message.bytes": str(LIMIT)})
    application = Application(settings, tmp_path, small, named)
    refused = [Random(number).randbytes(3 * LIMIT) for number in range(3)]

    def deny(*_: object) -> None:
        msg = "The broker does not let this client create a topic."
        raise AuthorizationError(msg)

    monkeypatch.setattr(KafkaTopics, "create", deny)
    try:
        assert log.refusals([record(small, refused[0])]) == []
        note = application.write(log, outputs(0, small, [b"a", *refused, LARGE]))

        assert_holds(log, TopicPartition(small, 0), [b"a", LARGE])
        assert note.refused == {small: 3}
    finally:
        log.close()
