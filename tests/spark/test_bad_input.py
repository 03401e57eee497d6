"""An application that cannot run is refused with the fix, before Java starts where possible."""

from __future__ import annotations

import re
import resource
import shlex
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from headrace import (
    BrokerUnavailableError,
    CheckpointError,
    CheckpointInUseError,
    ConfigError,
    KafkaStreams,
    ProcessingError,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    State,
    StreamsBuilder,
    StreamsError,
    Topology,
    TopologyError,
    UnknownTopicError,
    UnshippableError,
)
from headrace.brokers import TopicPartition, open_log
from headrace.cli.commands import app
from headrace.spark import runner
from tests.application_home import embedded_home
from tests.kafka_broker import free_ports, start_broker
from tests.spark.hosts import await_that
from tests.waiting import PATIENTLY

ORDER = "on the record at offset 2 of topic 'orders', partition 1, key 'customer-7'"

HOLD = """
import sys
from pathlib import Path
from headrace.home import DirectoryLock
DirectoryLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses to start Java."""

    def refuse(*_: object) -> None:
        pytest.fail("Java would be started")

    monkeypatch.setattr(runner, "open_session", refuse)


def copying() -> Topology:
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=str).to("out")
    return builder.build()


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=str).group_by_key().count(
        materialized="counts"
    ).to_stream().to("out")
    return builder.build()


def made(topology: Topology, folder: Path, **settings: Any) -> KafkaStreams:
    return KafkaStreams(
        topology, application_id="bad", state_dir=folder, num_stream_threads=2, **settings
    )


def create_topics(folder: Path, **partitions: int) -> None:
    log = open_log(made(copying(), folder).config)
    for topic, count in partitions.items():
        log.create_topic(topic, partitions=count)
    log.close()


@pytest.mark.usefixtures("no_java")
def test_an_unknown_topic_is_refused_with_the_nearest_names(tmp_path: Path) -> None:
    create_topics(tmp_path, order=1, payments=1)
    streams = made(copying(), tmp_path)

    with pytest.raises(UnknownTopicError) as caught:
        streams.start()

    assert str(caught.value) == "There is no topic 'orders'. Did you mean 'order'?"
    assert streams.state() is State.ERROR


@pytest.mark.usefixtures("no_java")
def test_a_broker_that_does_not_answer_is_waited_for_only_so_long(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    streams = made(copying(), tmp_path, bootstrap_servers=address, request_timeout="1s")

    with pytest.raises(BrokerUnavailableError) as caught:
        streams.start()

    assert address in str(caught.value)
    assert "bootstrap_servers" in str(caught.value)


@pytest.mark.usefixtures("no_java")
def test_topics_of_a_join_with_different_partitions_are_refused(tmp_path: Path) -> None:
    create_topics(tmp_path, orders=2, customers=3)
    builder = StreamsBuilder()
    customers = builder.table("customers", key=str, value=str)
    builder.stream("orders", key=str, value=str).join(
        customers, lambda order, customer: order + customer, value=str
    ).to("out")

    with pytest.raises(TopologyError) as caught:
        made(builder.build(), tmp_path).start()

    assert str(caught.value) == (
        "Topics that are joined must have the same number of partitions, but 'customers' has 3, "
        "'orders' has 2. Create them with equal numbers, or `repartition` one of the streams."
    )


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs the application."""
    command = [sys.executable, "-c", HOLD, str(embedded_home(tmp_path, "bad").work)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


@pytest.mark.usefixtures("no_java")
def test_a_checkpoint_that_another_process_uses_is_left_alone(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    create_topics(tmp_path, orders=1)

    with pytest.raises(CheckpointInUseError) as caught:
        made(copying(), tmp_path).start()

    folder = str(embedded_home(tmp_path, "bad").work)
    assert str(caught.value) == (
        f"Process {holder.pid} uses the state in {folder!r}. Stop it first, or give "
        "this application another `application_id` or `state_dir`."
    )


@pytest.mark.usefixtures("no_java")
def test_a_function_that_belongs_to_this_process_cannot_be_sent(tmp_path: Path) -> None:
    create_topics(tmp_path, orders=1)
    lock = threading.Lock()
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=str).filter(
        lambda _key, _value: lock.locked(), name="locked"
    ).to("out")

    with pytest.raises(UnshippableError) as caught:
        made(builder.build(), tmp_path, spark={"spark.sql.shuffle.partitions": "1"}).start()

    text = str(caught.value)
    assert text.startswith("Step 'locked' (")
    assert "test_bad_input.py" in text
    assert "cannot pickle '_thread.lock' object" in text
    assert text.endswith("inside the function or in `init`, not around it.")


def divided(value: str) -> str:
    return str(10 // int(value))


class Dividing(Processor[str, str, str, str]):
    """Fails at each punctuation."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        context.schedule("1h", PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: Record[str, str]) -> None: ...

    def tick(self, _timestamp: int) -> None:
        divided("0")


def failing(where: str) -> Topology:
    """Return a program that fails at the third record, whose value is 0."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=str, value=str)
    if where == "reader":
        orders.map_values(divided, value=str, name="divide").to("out")
    elif where == "aggregator":
        orders.group_by_key().aggregate(
            str, lambda _key, value, total: total + divided(value), name="divide"
        ).to_stream().to("out")
    elif where == "after a repartition":
        counts = orders.group_by_key().count(materialized="counts").to_stream()
        counts.map(lambda key, count: (key[-1], str(3 - count)), key=str, value=str).repartition(
            name="by-digit"
        ).map_values(divided, value=str, name="divide").to("out")
    else:
        orders.process(Dividing, key=str, value=str, name="divide").to("out")
    return builder.build()


SETTINGS: Any = {
    "statestore_cache_max_bytes": 0,
    "errors_dead_letter_queue_topic_name": "letters",
}


def count_letters(streams: KafkaStreams) -> int:
    log = open_log(streams.config)
    partitions = range(log.partition_count("letters"))
    count = sum(log.end_offsets(TopicPartition("letters", p) for p in partitions).values())
    log.close()
    return count


def ended_by(
    topology: Topology, folder: Path, guarantee: str = "exactly_once_v2"
) -> ProcessingError:
    """Run a program on three records of a partition, and return what ended it."""
    create_topics(folder, orders=2)
    streams = made(topology, folder, processing_guarantee=guarantee, **SETTINGS)
    log = open_log(streams.config)
    log.append([("orders", 1, n, b"customer-7", b"%d" % (2 - n), None) for n in range(3)])
    log.close()
    return run_until_error(streams)


def run_until_error(streams: KafkaStreams) -> ProcessingError:
    streams.start()
    with pytest.raises(ProcessingError) as caught:
        streams.await_termination(PATIENTLY)
    assert streams.state() is State.ERROR
    return caught.value


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("where", "place", "message"),
    [
        ("reader", ("orders", 1, 2), ORDER),
        pytest.param(*("aggregator", ("orders", 1, 2), ORDER), marks=pytest.mark.nightly("faults")),
        (
            "after a repartition",
            ("bad-by-digit-repartition", 1, 2),
            "on the record at offset 2 of topic 'bad-by-digit-repartition', partition 1, key '7'",
        ),
        pytest.param(
            *("punctuation", (None, -1, -1), "at the punctuation of 0"),
            marks=pytest.mark.nightly("faults"),
        ),
    ],
)
def test_an_error_of_user_code_shows_the_code_and_the_record_and_no_java(
    tmp_path: Path, where: str, place: tuple[str | None, int, int], message: str
) -> None:
    error = ended_by(failing(where), tmp_path)

    text = str(error)
    assert (error.node, error.topic, error.partition, error.offset) == ("divide", *place)
    assert f"Step 'divide' failed {message}" in text
    assert f'File "{__file__}", line {divided.__code__.co_firstlineno + 1}, in divided' in text
    assert "ZeroDivisionError" in text
    assert not any(word in text for word in ("org.apache", "java.", "Py4J", ".scala"))
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert type(error.__cause__).__name__ == "ZeroDivisionError"
    *_, last = traceback.extract_tb(error.__cause__.__traceback__)
    assert (last.filename, last.lineno) == (__file__, divided.__code__.co_firstlineno + 1)


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    "guarantee",
    ["exactly_once_v2", pytest.param("at_least_once", marks=pytest.mark.nightly("faults"))],
)
def test_a_record_that_stops_the_application_has_one_dead_letter_over_restarts(
    tmp_path: Path, guarantee: str
) -> None:
    ended_by(failing("aggregator"), tmp_path, guarantee)
    again = made(failing("aggregator"), tmp_path, processing_guarantee=guarantee, **SETTINGS)
    run_until_error(again)

    assert count_letters(again) == 1


def reading_ids() -> Topology:
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=str).map_values(UUID, value=UUID, name="id").to("out")
    return builder.build()


@pytest.mark.usefixtures("java")
def test_an_error_outside_of_user_code_shows_where_the_user_made_the_step(tmp_path: Path) -> None:
    error = ended_by(reading_ids(), tmp_path)

    assert "Step 'id' failed on the record at offset 0 of topic 'orders'" in str(error)
    line = reading_ids.__code__.co_firstlineno + 2
    assert error.__notes__ == [f"The step was made at {Path(__file__).name}:{line}."]


@pytest.mark.usefixtures("java")
def test_a_topology_that_no_longer_fits_its_checkpoint_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics(tmp_path, orders=1)
    first = made(counting(), tmp_path, trigger="available_now")
    first.start()
    assert first.await_termination(PATIENTLY)
    monkeypatch.setattr(runner, "open_session", lambda *_: pytest.fail("Java is not needed"))
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=str).group_by_key().count(
        materialized="totals"
    ).to_stream().to("out")

    with pytest.raises(CheckpointError) as caught:
        made(builder.build(), tmp_path).start()

    assert str(caught.value) == (
        "The topology no longer fits its checkpoint "
        f"{str(embedded_home(tmp_path, 'bad').checkpoint)!r}:\n"
        "  - store 'counts' is gone\n"
        "  - store 'totals' is new\n"
        "Run the topology that made it, give this one another `application_id`, or start again "
        f"with `headrace reset bad --embedded-path {tmp_path / 'topics.db'} "
        f"--state-dir {tmp_path}`."
    )


@pytest.mark.usefixtures("no_java")
def test_a_state_directory_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    create_topics(tmp_path, orders=1)
    (tmp_path / "bad").write_text("a file is in the way")

    with pytest.raises(CheckpointError) as caught:
        made(copying(), tmp_path).start()

    text = str(caught.value)
    folder = str(embedded_home(tmp_path, "bad").state)
    assert text.startswith(f"The state in {folder!r} cannot be written: ")
    assert text.endswith("Make room there, or give the application another `state_dir`.")


@pytest.mark.usefixtures("no_java")
def test_a_full_disk_is_an_error_at_the_start(tmp_path: Path) -> None:
    create_topics(tmp_path, orders=1)
    streams = made(copying(), tmp_path, spark={"spark.sql.shuffle.partitions": "1"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(StreamsError) as caught:
            streams.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    # Which file is in want of room first is not said; where it is, and what to do about it, is.
    assert str(tmp_path) in str(caught.value)
    assert "Make room" in str(caught.value)


@pytest.mark.usefixtures("java")
def test_a_checkpoint_that_fails_under_a_running_query_ends_it_by_name(tmp_path: Path) -> None:
    create_topics(tmp_path, orders=1)
    streams = made(copying(), tmp_path, task_timeout=0)
    streams.start()
    await_that(lambda: streams.state() is State.RUNNING, "running", streams)

    offsets = embedded_home(tmp_path, "bad").checkpoint / "spark" / "offsets"
    offsets.rename(offsets.with_name("aside"))
    offsets.write_text("a file is in the way")
    log = open_log(streams.config)
    log.append([("orders", 0, 1, b"k", b"v", None)])
    log.close()

    with pytest.raises(StreamsError) as caught:
        streams.await_termination(PATIENTLY)
    assert "Spark ended the query of application 'bad'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.nightly("faults")
@pytest.mark.usefixtures("no_java")
def test_missing_output_topics_that_kafka_does_not_create_are_in_one_error(
    tmp_path: Path,
) -> None:
    with start_broker(properties={"auto.create.topics.enable": "false"}) as broker:
        dead_letters: Any = {"errors_dead_letter_queue_topic_name": "letters"}
        streams = made(copying(), tmp_path, bootstrap_servers=broker.address, **dead_letters)
        log = open_log(streams.config)
        log.create_topic("orders", partitions=2)

        with pytest.raises(UnknownTopicError) as caught:
            streams.start()

        left = log.list_topics()
        run = CliRunner()
        for command in re.findall(r"`headrace ([^`]+)`", str(caught.value)):
            assert run.invoke(app, shlex.split(command)).exit_code == 0
        created = {topic: log.partition_count(topic) for topic in log.list_topics()}
        log.close()
    to = f"--partitions 2 --bootstrap-servers {broker.address} --state-dir {tmp_path}"
    assert str(caught.value) == (
        "There is no topic 'letters'. The broker creates none by itself. Create what is missing: "
        f"`headrace topics create letters {to}`, `headrace topics create out {to}`."
    )
    assert left == ["orders"]
    assert created == {"letters": 2, "orders": 2, "out": 2}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_java")
def test_a_master_elsewhere_is_refused_without_kafka(tmp_path: Path) -> None:
    spark = {"spark.master": "spark://host:7077"}

    with pytest.raises(ConfigError, match=r"'spark://host:7077' .* `bootstrap_servers`"):
        made(copying(), tmp_path, spark=spark).start()


def test_a_start_without_java_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics(tmp_path, orders=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    streams = made(copying(), tmp_path)

    with pytest.raises(StreamsError) as caught:
        streams.start()

    assert str(caught.value) == (
        f"Java is missing: `JAVA_HOME` is {str(tmp_path)!r}, where there is none. Spark needs Java "
        "17 or later. Install one and set `JAVA_HOME`, or put it on the path."
    )
    assert streams.state() is State.ERROR


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (PermissionError(13, "Permission denied", "/opt/java"), "'/opt/java'"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
    ],
)
def test_an_os_error_outside_the_state_directory_does_not_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: OSError, message: str
) -> None:
    create_topics(tmp_path, orders=1)

    def refuse(*_: object) -> None:
        raise refused

    monkeypatch.setattr(runner, "open_session", refuse)

    with pytest.raises(StreamsError) as caught:
        made(copying(), tmp_path).start()

    assert str(caught.value).startswith("Application 'bad' cannot start: ")
    assert message in str(caught.value)
