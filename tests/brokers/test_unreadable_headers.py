"""Headers whose names are no text: Java takes them, and the Python client of Kafka does not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from headrace import DeserializationError, ErrorHandlerContext, HandlerResponse, StreamsBuilder
from headrace.brokers import TopicPartition
from headrace.brokers.kafka import KafkaLog
from headrace.clients import KafkaConsumer
from headrace.config import StreamsConfig
from headrace.records import ConsumerRecord, ProducerRecord
from tests.brokers.appending import assert_holds
from tests.brokers.consuming import take
from tests.kafka_broker import RunningBroker
from tests.runtime.in_process import InProcessQuery
from tests.unique_names import unique

TIMESTAMP = 5
READABLE = (b"trace", b"1")
UNREADABLE = (b"\xff\xfe", b"2")


class RawProducer:
    """librdkafka's producer as C programs use it: the names of headers are bytes."""

    def __init__(self, address: str) -> None:
        [path] = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob(
            "librdkafka*"
        )
        self._library = library = ctypes.CDLL(str(path))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
            getattr(library, name).restype = ctypes.c_void_p
        said = ctypes.create_string_buffer(512)
        settings = ctypes.c_void_p(library.rd_kafka_conf_new())
        library.rd_kafka_conf_set(settings, b"bootstrap.servers", address.encode(), said, 512)
        self._producer = ctypes.c_void_p(library.rd_kafka_new(0, settings, said, 512))

    def send(self, topic: str, value: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Write a record to partition 0, and wait until that is done."""
        library, number = self._library, ctypes.c_int
        made = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(len(headers))))
        for name, held in headers:
            sizes = [ctypes.c_ssize_t(len(each)) for each in (name, held)]
            library.rd_kafka_header_add(made, name, sizes[0], held, sizes[1])
        arguments = [
            *(number(1), ctypes.c_char_p(topic.encode())),
            *(number(3), ctypes.c_int32(0)),
            *(number(4), ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
            *(number(5), ctypes.c_char_p(b"k"), ctypes.c_size_t(1)),
            *(number(7), number(2)),  # copies the value
            *(number(8), ctypes.c_int64(TIMESTAMP)),
            *(number(10), made),
        ]
        assert library.rd_kafka_producev(self._producer, *arguments, number(0)) == 0
        assert library.rd_kafka_flush(self._producer, 20_000) == 0

    def close(self) -> None:
        self._library.rd_kafka_destroy(self._producer)


@pytest.fixture
def name() -> str:
    """A name of a topic and an application: the broker is shared."""
    return unique("unreadable")


@pytest.fixture
def log(kafka: RunningBroker) -> Iterator[KafkaLog]:
    opened = KafkaLog(StreamsConfig(bootstrap_servers=kafka.address, request_timeout="20s"))
    yield opened
    opened.close()


@pytest.fixture
def topic(kafka: RunningBroker, log: KafkaLog, name: str) -> str:
    """A topic of six records; of those at offset 1, 3 and 4 a header cannot be read."""
    log.create_topic(name)
    producer = RawProducer(kafka.address)
    for offset in range(6):
        bad = [UNREADABLE] if offset in (1, 3, 4) else []
        producer.send(name, b"%d" % offset, READABLE, *bad, READABLE)
    producer.close()
    return name


def records_of(log: KafkaLog, topic: str) -> list[ConsumerRecord]:
    partition = TopicPartition(topic, 0)
    end = log.end_offsets([partition])[partition]
    return [record for some in log.read(partition, 0, end) for record in some]


def test_records_with_and_without_such_headers_are_read_together(log: KafkaLog, topic: str) -> None:
    found = records_of(log, topic)

    assert [record.value for record in found] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    whole = [record.offset for record in found if record.timestamp == TIMESTAMP]
    assert whole == [0, 2, 5]
    assert all(dict(found[offset].headers) == {"trace": b"1"} for offset in whole)


def test_a_consumer_raises_and_may_seek_behind_the_record(kafka: RunningBroker, topic: str) -> None:
    with KafkaConsumer(
        key=str, value=str, bootstrap_servers=kafka.address, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        before = take(consumer, 1)
        with pytest.raises(DeserializationError) as caught:
            take(consumer, 1)
        consumer.seek(TopicPartition(topic, 0), 2)
        after = take(consumer, 1)

    assert str(caught.value) == (
        f"The headers at offset 1 of {topic!r}, partition 0, cannot be read: the name "
        r"b'\xff\xfe' is not UTF-8. Seek to 2 to continue."
    )
    error = caught.value
    assert (error.topic, error.partition, error.offset) == (topic, 0, 1)
    assert [record.value for record in [*before, *after]] == ["0", "2"]


def passed_on(topic: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream(topic, key=str, value=str, name="source").to(f"{topic}-out")
    return builder


def counted(topic: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream(topic, key=str, value=str, name="source")
    stream.group_by_key().count().to_stream().map_values(str, value=str).to(f"{topic}-out")
    return builder


def by_clock(topic: str) -> StreamsBuilder:
    def extract(record: ConsumerRecord, _partition_time: int) -> int:
        return record.timestamp

    builder = StreamsBuilder()
    stream = builder.stream(topic, key=str, value=str, name="source", timestamp_extractor=extract)
    stream.to(f"{topic}-out")
    return builder


BUILDERS = [passed_on, counted, by_clock]


def query_of(
    kafka: RunningBroker, builder: StreamsBuilder, name: str, folder: Path, **settings: Any
) -> InProcessQuery:
    return InProcessQuery(
        builder.build(), folder, application_id=name, bootstrap_servers=kafka.address, **settings
    )


@pytest.mark.parametrize("build", BUILDERS)
def test_an_application_stops_with_the_location_and_the_fix(
    kafka: RunningBroker,
    log: KafkaLog,
    topic: str,
    tmp_path: Path,
    build: Callable[[str], StreamsBuilder],
) -> None:
    log.create_topic(f"{topic}-out")
    query = query_of(kafka, build(topic), topic, tmp_path)

    with pytest.raises(DeserializationError) as caught:
        query.run()

    assert str(caught.value) == (
        "Source 'source' could not read the headers of the record at offset 1 of topic "
        rf"{topic!r}, partition 0, key 'k': UnicodeError: the name b'\xff\xfe' is not UTF-8. Let "
        'its producer name headers in UTF-8, or set `deserialization_exception_handler="continue"` '
        "to leave such records out."
    )
    error = caught.value
    assert (error.node, error.topic, error.partition, error.offset) == ("source", topic, 0, 1)


@pytest.mark.parametrize("build", BUILDERS)
def test_an_application_may_continue_and_write_a_dead_letter_without_headers(
    kafka: RunningBroker,
    log: KafkaLog,
    topic: str,
    tmp_path: Path,
    build: Callable[[str], StreamsBuilder],
) -> None:
    for made in (f"{topic}-out", f"{topic}-letters"):
        log.create_topic(made)
    query = query_of(
        kafka,
        build(topic),
        topic,
        tmp_path,
        deserialization_exception_handler="continue",
        errors_dead_letter_queue_topic_name=f"{topic}-letters",
    )

    query.run()

    written = [b"3"] if build is counted else [b"0", b"2", b"5"]
    assert_holds(log, TopicPartition(f"{topic}-out", 0), written)
    assert query.dropped() == {"0_0": {"source": {"deserialization": 3}}}
    assert_holds(log, TopicPartition(f"{topic}-letters", 0), [b"1", b"3", b"4"])
    dead_letters = records_of(log, f"{topic}-letters")
    assert {(dead_letter.key, dead_letter.timestamp) for dead_letter in dead_letters} == {
        (b"k", TIMESTAMP)
    }
    headers = dict(dead_letters[0].headers)
    assert {each.rpartition(".")[0] for each in headers} == {"__streams.errors"}
    assert headers["__streams.errors.offset"] == b"1"


def test_a_handler_is_asked_as_for_a_key_or_a_value(
    kafka: RunningBroker, log: KafkaLog, topic: str, tmp_path: Path
) -> None:
    out = f"{topic}-out"

    def tell(context: ErrorHandlerContext, record: Any, _error: Exception) -> HandlerResponse:
        assert record == ConsumerRecord(topic, 0, context.offset, TIMESTAMP, b"k", record.value)
        assert (context.topic, list(context.headers), context.origin) == (topic, [], None)
        assert (context.source_raw_key, context.source_raw_value) == (b"k", record.value)
        dead_letter = ProducerRecord(out, 0, context.timestamp, None, b"asked " + record.value)
        return HandlerResponse.resume([dead_letter])

    log.create_topic(out)
    query = query_of(
        kafka, passed_on(topic), topic, tmp_path, deserialization_exception_handler=tell
    )

    query.run()

    written = [b"0", b"asked 1", b"2", b"asked 3", b"asked 4", b"5"]
    assert_holds(log, TopicPartition(out, 0), written)
