"""Hostile records, a hostile checkpoint, lost records and a full disk, on real Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace import (
    KafkaStreams,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordError,
    State,
    StreamsBuilder,
    StreamsError,
    Topology,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.brokers.sessions import Broker
from headrace.metrics import MetricName
from headrace.records import headers_of
from tests.hostile import INPUTS, Bomb, bombs, fuzzed, hostile_topology
from tests.kafka_broker import PASSWORD, USER, RunningBroker, start_broker
from tests.spark.hosts import await_that
from tests.waiting import PATIENCE, PATIENTLY

pytestmark = pytest.mark.usefixtures("java")

EACH = 500
"""How many hostile records a topic has."""


class Application:
    """An application on the embedded log, or where its settings say."""

    def __init__(self, folder: Path, topology: Topology, **settings: Any) -> None:
        self._topology = topology
        self._settings = {
            "application_id": "hostile",
            "state_dir": folder,
            "num_stream_threads": 2,
            "statestore_cache_max_bytes": 0,
            "trigger": "available_now",
            "task_timeout": 0,
            **settings,
        }
        self.log: Broker = open_log(self.made().config)

    def made(self, **settings: Any) -> KafkaStreams:
        """Return the application as its next start needs it."""
        return KafkaStreams(self._topology, **{**self._settings, **settings})

    def run(self, **settings: Any) -> KafkaStreams:
        """Run the application to the end of its input."""
        streams = self.made(**settings)
        streams.start()
        try:
            assert streams.await_termination(PATIENTLY)
        finally:
            streams.close()
        return streams

    def held(self, topic: str) -> list[bytes | None]:
        """Return the values of a topic."""
        found: list[bytes | None] = []
        for partition in range(self.log.partition_count(topic)):
            name = TopicPartition(topic, partition)
            begin, end = (
                self.log.beginning_offsets([name])[name],
                self.log.end_offsets([name])[name],
            )
            found += [each.value for some in self.log.read(name, begin, end) for each in some]
        return found


def dropped(streams: KafkaStreams, node: str, reason: str) -> float:
    """Return how many records a step dropped."""
    return sum(
        count
        for name, count in streams.metrics().items()
        if str(name) == "dropped-by-reason-total"
        and {("processor-node-id", node), ("reason", reason)} <= set(name.tags)
    )


def copying() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out")
    return builder.build()


def keeping() -> Topology:
    builder = StreamsBuilder()
    builder.table("in", key=bytes, value=bytes, materialized="kept").to_stream().to("out")
    return builder.build()


@pytest.fixture
def hostile(tmp_path: Path) -> Application:
    """An application whose topics are full of hostile records."""
    application = Application(tmp_path, hostile_topology())
    for topic in INPUTS:
        application.log.create_topic(topic, partitions=2)
        application.log.create_topic(f"out-{topic}", partitions=2)
        application.log.append(
            (topic, number % 2, timestamp, key, value, headers_of(headers))
            for number, (key, value, timestamp, headers) in enumerate(fuzzed(topic, EACH))
        )
    application.log.create_topic("dead", partitions=2)
    return application


def test_every_hostile_record_is_processed_or_a_counted_dead_letter(hostile: Application) -> None:
    streams = hostile.run(
        deserialization_exception_handler="continue",
        processing_exception_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
    )

    dead_letters = 0.0
    for topic in INPUTS:
        unread = dropped(streams, f"read-{topic}", "deserialization")
        failed = dropped(streams, f"work-{topic}", "processing")
        ignored = 0.0
        if topic == "counted":
            ignored = dropped(streams, "count", "late") + dropped(streams, "count", "null-key")
        assert unread > 0
        assert len(hostile.held(f"out-{topic}")) + unread + failed + ignored == EACH
        dead_letters += unread + failed
    assert len(hostile.held("dead")) == dead_letters


def test_a_hostile_record_that_stops_the_application_is_named(hostile: Application) -> None:
    with pytest.raises(RecordError) as caught:
        hostile.run()

    assert caught.value.topic in INPUTS
    assert caught.value.offset >= 0
    assert [topic for topic in INPUTS if hostile.held(f"out-{topic}")] == []


@pytest.fixture
def bomb(tmp_path: Path) -> Iterator[Bomb]:
    """A pickle that makes a file; the test fails if there is one."""
    bomb = Bomb(tmp_path / "exploded")
    yield bomb
    assert not bomb.mark.exists()


@pytest.fixture
def used(tmp_path: Path, bomb: Bomb) -> Application:
    """An application that has read bombs, and keeps them in its state."""
    application = Application(tmp_path / "state", keeping())
    application.log.create_topic("in")
    application.log.create_topic("out")
    for _ in range(2):
        application.log.append(("in", 0, 1, data, data, [("pickle", data)]) for data in bombs(bomb))
        application.run()
    assert application.held("out") == bombs(bomb) * 2
    return application


CHECKPOINT = ["metadata", "offsets/*", "commits/*", "state/**/*"]


@pytest.mark.parametrize("files", CHECKPOINT)
def test_a_checkpoint_that_is_made_of_pickles_is_refused(
    files: str, used: Application, bomb: Bomb, tmp_path: Path
) -> None:
    (place,) = (tmp_path / "state").rglob("offsets")
    replaced = [path for path in place.parent.glob(files) if path.is_file()]
    assert replaced
    for path in replaced:
        path.write_bytes(bombs(bomb)[0])
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    used.log.append([("in", 0, 1, b"k", b"v", None)])

    with pytest.raises(StreamsError):
        used.run()

    assert len(used.held("out")) == 2 * len(bombs(bomb))


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_record_that_the_broker_refuses_becomes_a_dead_letter(
    servers: str | None, guarantee: str, tmp_path: Path
) -> None:
    given, small, dead_letter_topic = (
        f"{guarantee}-{name}" for name in ("given", "small", "letters")
    )
    builder = StreamsBuilder()
    stream = builder.stream(given, key=bytes, value=bytes)
    stream.group_by_key().reduce(lambda _, value: value).to_stream().to(small)
    application = Application(
        tmp_path,
        builder.build(),
        application_id=f"{guarantee}-refused",
        bootstrap_servers=servers,
        processing_guarantee=guarantee,
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name=dead_letter_topic,
    )
    application.log.create_topic(given)
    application.log.create_topic(small, settings={"max.message.bytes": "1000"})
    application.log.create_topic(dead_letter_topic)
    large = bytes(5_000)
    application.log.append([(given, 0, 1, b"k", each, None) for each in (b"a", large, b"b")])

    streams = application.run()

    await_that(lambda: b"b" in application.held(small), "the last record")
    await_that(lambda: large in application.held(dead_letter_topic), "the dead letter")
    if guarantee == "exactly_once_v2":
        assert application.held(small) == [b"a", b"b"]
        assert application.held(dead_letter_topic) == [large]
    else:  # what the broker took before it refused one may be there twice
        assert set(application.held(small)) == {b"a", b"b"}
        assert set(application.held(dead_letter_topic)) == {large}
    name = MetricName("stream-topic-metrics", "records-refused-total", (("topic", small),))
    assert streams.metrics()[name] == 1


@pytest.mark.parametrize(
    ("reset", "expected"), [("earliest", [b"a", b"b", b"c"]), ("latest", [b"c"])]
)
def test_an_application_begins_at_the_offset_of_auto_offset_reset(
    reset: str, expected: list[bytes], tmp_path: Path
) -> None:
    application = Application(tmp_path, copying(), consumer={"auto.offset.reset": reset})
    application.log.create_topic("in")
    application.log.create_topic("out")
    application.log.append([("in", 0, 1, b"k", value, None) for value in (b"a", b"b")])
    streams = application.made(trigger="continuous")

    with streams:
        await_that(lambda: streams.state() is State.RUNNING, "running", streams)
        application.log.append([("in", 0, 1, b"k", b"c", None)])
        await_that(lambda: b"c" in application.held("out"), "the last record", streams)

    assert application.held("out") == expected


def test_an_application_that_may_not_choose_where_to_begin_is_refused(tmp_path: Path) -> None:
    application = Application(tmp_path, copying(), consumer={"auto.offset.reset": "none"})
    application.log.create_topic("in")
    application.log.create_topic("out")

    with pytest.raises(NoOffsetForPartitionError, match="'in'"):
        application.run()


@pytest.fixture
def behind(tmp_path: Path) -> Application:
    """An application that has read three records; of the next four, two are gone."""
    application = Application(tmp_path, copying())
    application.log.create_topic("in")
    application.log.create_topic("out")
    application.log.append([("in", 0, 1, b"k", b"%d" % n, None) for n in range(3)])
    application.run()
    application.log.append([("in", 0, 1, b"k", b"%d" % n, None) for n in range(3, 7)])
    application.log.delete_records({TopicPartition("in", 0): 5})
    return application


def test_records_that_are_gone_stop_the_application_by_name(behind: Application) -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        behind.run()

    assert "'in'" in str(caught.value)
    assert "3" in str(caught.value)
    assert "5" in str(caught.value)
    assert behind.held("out") == [b"0", b"1", b"2"]


def test_records_that_are_gone_may_be_left_out_and_are_counted(behind: Application) -> None:
    streams = behind.run(fail_on_data_loss=False)

    assert behind.held("out") == [b"0", b"1", b"2", b"5", b"6"]
    assert streams.metrics()[MetricName("stream-metrics", "lost-offsets-total")] == 2


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker whose other address takes only encrypted connections of those who log in."""
    store, certificate = tmp_path / "broker.p12", tmp_path / "broker.pem"
    keytool = ["keytool", "-keystore", str(store), "-storepass", "secret", "-alias", "broker"]
    pair = ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=localhost", "-ext", "SAN=IP:127.0.0.1"]
    for words in (pair, ["-exportcert", "-rfc", "-file", str(certificate)]):
        subprocess.run([*keytool, *words], check=True, capture_output=True)
    listener = "listener.name.sasl_plaintext.ssl.keystore"
    properties = {
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_SSL"
        ),
        f"{listener}.location": str(store),
        f"{listener}.password": "secret",
    }
    with start_broker(properties=properties) as broker:
        yield broker


@pytest.mark.nightly("faults")
def test_source_sink_and_admin_log_in_over_an_encrypted_connection(
    guarded: RunningBroker, tmp_path: Path
) -> None:
    application = Application(
        tmp_path / "state",
        keeping(),
        bootstrap_servers=guarded.sasl_address,
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username=USER,
        sasl_password=PASSWORD,
        ssl_ca_location=str(tmp_path / "broker.pem"),
        request_timeout="30s",
    )
    application.log.create_topic("in", partitions=2)
    application.log.create_topic("out", partitions=2)
    application.log.append(("in", n % 2, 1, b"%d" % n, b"v%d" % n, None) for n in range(10))

    application.run()

    assert sorted(filter(None, application.held("out"))) == [b"v%d" % n for n in range(10)]
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if PASSWORD.encode() in path.read_bytes()] == []


FILL = """
import hashlib, resource, sys
from headrace import KafkaStreams, Materialized, StreamsBuilder, StreamsError
from headrace.brokers import open_log

def grown(key, value, _):
    parts = (hashlib.sha256(b"%d of %s" % (n, key)).digest() for n in range(10_000))
    return b"".join(parts)

builder = StreamsBuilder()
builder.stream("in", key=bytes, value=bytes).group_by_key().aggregate(
    bytes, grown, materialized=Materialized(value=bytes)
)
streams = KafkaStreams(
    builder.build(),
    application_id="full",
    state_dir=sys.argv[1],
    num_stream_threads=2,
    task_timeout=0,
)
log = open_log(streams.config)
log.create_topic("in")
log.append(("in", 0, 1, b"%d" % n, b"v", None) for n in range(60))
log.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
streams.start()
try:
    streams.await_termination("200s")
except StreamsError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.nightly("faults")
def test_a_disk_that_fills_during_a_run_is_named_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Java and the workers inherit the limit, so the application has Java to itself.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=1.5 * PATIENCE,  # longer than the application waits itself
        check=True,
    )

    place = str(tmp_path / "full" / "embedded")
    message = f"CheckpointError The state in {place!r} cannot be written: File too large. Make room"
    assert done.stdout.startswith(message)


def counting() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=str, value=bytes, name="source")
        .group_by(lambda key, _: key, key=str, value=bytes)
        .count(materialized="counts")
        .to_stream()
        .map_values(lambda count: b"%d" % count, value=bytes)
        .to("out")
    )
    return builder.build()


def test_records_with_large_headers_and_one_above_max_record_bytes_are_counted(
    tmp_path: Path,
) -> None:
    application = Application(tmp_path, counting(), deserialization_exception_handler="continue")
    for topic in ("in", "out"):
        application.log.create_topic(topic, settings={"max.message.bytes": str(80 << 20)})
    headers = headers_of([("h", bytes(1 << 20))] * 4)
    application.log.append([("in", 0, 1, b"k", b"", headers)] * 20)
    application.log.append([("in", 0, 1, b"k", bytes(70 << 20), None)])
    application.log.append([("in", 0, 1, b"k", b"", None)])

    streams = application.run()

    assert application.held("out")[-1] == b"21"
    assert dropped(streams, "source", "deserialization") == 1


@pytest.mark.nightly("faults")
def test_a_compressed_record_that_expands_is_left_out_on_kafka(
    kafka: RunningBroker, tmp_path: Path
) -> None:
    application = Application(
        tmp_path,
        counting(),
        application_id="expanding",
        bootstrap_servers=kafka.address,
        deserialization_exception_handler="continue",
    )
    for topic in ("in", "out"):
        application.log.create_topic(topic)
    expanding = {"compression.type": "zstd", "message.max.bytes": 100 << 20}
    producer = Producer({"bootstrap.servers": kafka.address, **expanding})
    for value in (b"a", bytes(70 << 20), b"b"):
        producer.produce("in", key=b"k", value=value, partition=0)
        assert producer.flush(PATIENCE) == 0

    streams = application.run()

    await_that(lambda: b"2" in application.held("out"), "the last record")
    assert dropped(streams, "source", "deserialization") == 1
