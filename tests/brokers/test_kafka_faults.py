"""Whatever happens to a broker or the network: a batch is written once, or an error is raised.

A batch is written as the sink of an application writes it: fence, look at the marker, and write
records and marker in one transaction. An attempt that raises is followed by another one.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import (
    BrokerError,
    BrokerUnavailableError,
    ProducerFencedError,
    StreamsConfig,
    StreamsError,
)
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.kafka import KafkaLog, transactions
from headrace.brokers.sessions import Broker, RebalanceListener
from headrace.clients import KafkaConsumer
from tests.brokers.appending import assert_holds, record
from tests.brokers.consuming import Named, poll_until
from tests.kafka_broker import RunningBroker, start_broker
from tests.tcp_proxy import Request, TcpProxy
from tests.waiting import PATIENCE, await_that

pytestmark = pytest.mark.nightly("faults")

HASTY = "1500ms"
HURRIED = "5s"
PATIENT = "60s"
LONGEST_MS = 150_000
"""How long a transaction may be open here at most."""
BATCH = [b"a", b"b", b"c"]
# In the order in which an attempt sends them.
SENT = [
    Request.METADATA,
    Request.FIND_COORDINATOR,
    Request.INIT_PRODUCER_ID,
    Request.OFFSET_FETCH,
    Request.ADD_PARTITIONS,
    Request.PRODUCE,
    Request.ADD_OFFSETS,
    Request.COMMIT_OFFSETS,
    Request.END_TRANSACTION,
]


@pytest.fixture(scope="module")
def proxy() -> Iterator[TcpProxy]:
    with TcpProxy() as running:
        yield running


@pytest.fixture(scope="module")
def broker(proxy: TcpProxy) -> Iterator[RunningBroker]:
    """A broker behind a proxy, which ends transactions as soon as their time is over."""
    hurried = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        # One that comes back waits for as long until it is taken for a new one.
        "broker.session.timeout.ms": "3000",
        "transaction.max.timeout.ms": str(LONGEST_MS),
    }
    with start_broker(proxy_port=proxy.port, properties=hurried) as running:
        proxy.lead_to(running.behind_proxy)
        yield running


@pytest.fixture(autouse=True)
def healed(proxy: TcpProxy) -> Iterator[None]:
    yield
    # A failed client lives as long as its error, and would retry requests that the next test waits
    # for.
    gc.collect()
    proxy.heal()


@pytest.fixture
def direct(broker: RunningBroker) -> Iterator[Broker]:
    """The log, past the proxy."""
    log = open_log(StreamsConfig(bootstrap_servers=broker.address, request_timeout=PATIENT))
    yield log
    log.close()


@pytest.fixture
def out(direct: Broker, named: Named) -> TopicPartition:
    """Return the partition that batches go to."""
    direct.create_topic(named("out"))
    return TopicPartition(named("out"), 0)


@pytest.fixture
def marker(direct: Broker, named: Named) -> TopicPartition:
    """Return the partition that has the number of the batch that was written."""
    direct.create_topic(named("markers"))
    return TopicPartition(named("markers"), 0)


def case_name(part: object) -> str:
    if isinstance(part, Request):
        return part.name.lower()
    return "answer-lost" if part else "lost"


def through(proxy: TcpProxy, timeout: str) -> Broker:
    return open_log(StreamsConfig(bootstrap_servers=proxy.address, request_timeout=timeout))


def write(log: Broker, out: TopicPartition, marker: TopicPartition) -> None:
    """Write the batch, unless its marker is there."""
    with log.transaction(f"{out.topic}-writer") as transaction:
        if not log.committed_offsets(marker.topic, [marker]):
            transaction.append([record(out.topic, value) for value in BATCH])
            transaction.commit_offsets(marker.topic, {marker: OffsetAndMetadata(1)})


def assert_written_once(log: Broker, out: TopicPartition, marker: TopicPartition) -> None:
    log.append([record(out.topic, b"behind")])
    assert_holds(log, out, [*BATCH, b"behind"])
    assert log.committed_offsets(marker.topic, [marker]) == {marker: OffsetAndMetadata(1)}


@pytest.mark.parametrize(
    ("request_", "arrives"),
    [
        *((each, True) for each in SENT),
        *((each, False) for each in (Request.PRODUCE, Request.END_TRANSACTION)),
    ],
    ids=case_name,
)
def test_a_broken_connection_is_restored(
    proxy: TcpProxy,
    direct: Broker,
    out: TopicPartition,
    marker: TopicPartition,
    request_: Request,
    arrives: bool,
) -> None:
    log = through(proxy, PATIENT)
    proxy.on_request(request_, proxy.drop, arrives=arrives)

    write(log, out, marker)
    log.close()

    assert proxy.trapped.is_set()
    assert_written_once(direct, out, marker)


@pytest.mark.parametrize(
    ("request_", "arrives"),
    [
        (Request.INIT_PRODUCER_ID, False),
        (Request.PRODUCE, True),
        (Request.END_TRANSACTION, False),
        (Request.END_TRANSACTION, True),
    ],
    ids=case_name,
)
def test_a_silent_broker_raises_and_the_next_attempt_finishes(
    proxy: TcpProxy,
    direct: Broker,
    out: TopicPartition,
    marker: TopicPartition,
    request_: Request,
    arrives: bool,
) -> None:
    log = through(proxy, HURRIED)
    # The client of the test before may still try to end its transaction.
    proxy.on_request(request_, proxy.stall, arrives=arrives, of=f"{out.topic}-writer")

    with pytest.raises(BrokerUnavailableError, match=proxy.address) as caught:
        write(log, out, marker)
    log.close()
    # The stalled request arrives late, as it may in a network.
    proxy.heal()
    if request_ == Request.END_TRANSACTION:
        assert "Whether it was committed shows when its id is opened again" in str(caught.value)
    else:
        assert direct.committed_offsets(marker.topic, [marker]) == {}
    try:
        write(direct, out, marker)
    except ProducerFencedError:
        # The request that arrived late was that of a producer of this id.
        assert request_ == Request.INIT_PRODUCER_ID
        write(direct, out, marker)

    assert proxy.trapped.is_set()
    assert_written_once(direct, out, marker)


def test_a_connection_that_is_dead_without_a_word_is_replaced(
    proxy: TcpProxy, direct: Broker, out: TopicPartition, marker: TopicPartition
) -> None:
    log = through(proxy, "6s")
    direct.append([record(out.topic, b"before")])
    assert_holds(log, out, [b"before"])
    log.append([record(out.topic, b"first")])
    proxy.freeze()

    write(log, out, marker)
    log.append([record(out.topic, b"last")])

    assert_holds(log, out, [b"before", b"first", *BATCH, b"last"])
    assert log.committed_offsets(marker.topic, [marker]) == {marker: OffsetAndMetadata(1)}
    log.close()


def test_a_slow_way_to_the_broker_is_only_slow(
    proxy: TcpProxy, direct: Broker, out: TopicPartition, marker: TopicPartition
) -> None:
    proxy.delay(0.03)
    log = through(proxy, PATIENT)

    write(log, out, marker)

    assert_written_once(log, out, marker)
    log.close()


def test_a_transaction_that_took_too_long_raises_and_may_be_retried(
    direct: Broker, out: TopicPartition, marker: TopicPartition
) -> None:
    def dawdle() -> None:
        with direct.transaction(f"{out.topic}-writer", timeout_ms=1_000) as transaction:
            transaction.append([record(out.topic, b"late")])
            transaction.commit_offsets(marker.topic, {marker: OffsetAndMetadata(1)})
            time.sleep(1)
            direct.append([record(out.topic, b"meanwhile")])
            # Readers get past it once the broker has ended it.
            assert_holds(direct, out, [b"meanwhile"])

    with pytest.raises(BrokerError, match=r"`transaction\.timeout\.ms`"):
        dawdle()
    write(direct, out, marker)

    assert_holds(direct, out, [b"meanwhile", *BATCH])


def test_the_time_of_a_transaction_follows_what_writing_takes(direct: KafkaLog) -> None:
    writer = direct._writer
    first = writer.transaction_timeout_ms()

    writer.note_write(10)
    slow = writer.transaction_timeout_ms()
    for _ in range(100):
        writer.note_write(0.1)
    writer_again = writer.transaction_timeout_ms()
    writer.note_write(10_000)

    assert (first, slow, writer_again) == (120_000, 200_000, 120_000)
    assert writer.transaction_timeout_ms() == 900_000


def test_the_time_of_a_transaction_follows_what_is_to_be_written(direct: KafkaLog) -> None:
    """A worker whose transaction took too long ends, and the next one knows nothing of it."""
    writer = direct._writer

    times = [writer.transaction_timeout_ms(megabytes * 1_000_000) for megabytes in (1, 8, 500)]

    assert times == [140_000, 280_000, 900_000]


def test_a_transaction_is_given_the_time_for_what_is_to_be_written(
    broker: RunningBroker, out: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=broker.address, request_timeout="20s"))
    asked: list[int] = []
    opened = transactions.open_transactional

    def noted(writer: Any, name: str, timeout_ms: int, **own: Any) -> Any:
        asked.append(timeout_ms)
        return opened(writer, name, timeout_ms, **own)

    monkeypatch.setattr(transactions, "open_transactional", noted)

    for size in (0, 2_000_000):
        with log.transaction(f"{out.topic}-writer", size=size) as transaction:
            transaction.append([record(out.topic, b"a")])
    log.close()

    assert asked == [40_000, 80_000]


def test_a_transaction_that_cannot_begin_raises_our_error(
    direct: KafkaLog, out: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{out.topic}-writer"
    opened = transactions.open_transactional

    def begun(*given: Any, **own: Any) -> Any:
        producer, timeout_ms = opened(*given, **own)
        producer.begin_transaction()
        return producer, timeout_ms

    monkeypatch.setattr(transactions, "open_transactional", begun)

    with pytest.raises(BrokerError, match=f"Kafka refused to begin transaction '{name}': "):
        direct.transaction(name).__enter__()


def test_a_broker_that_gives_transactions_less_time_is_asked_for_less(
    direct: KafkaLog, out: TopicPartition, marker: TopicPartition
) -> None:
    direct._writer.note_write(10_000)

    write(direct, out, marker)

    assert_written_once(direct, out, marker)
    assert direct._writer.transaction_timeout_ms() <= LONGEST_MS


def test_a_time_that_was_asked_for_and_is_too_long_is_reported(
    broker: RunningBroker, out: TopicPartition
) -> None:
    settings = {"transaction.timeout.ms": str(2 * LONGEST_MS)}
    log = open_log(StreamsConfig(bootstrap_servers=broker.address, producer=settings))

    with (
        pytest.raises(BrokerError, match=r"max\.transaction\.timeout\.ms"),
        log.transaction(f"{out.topic}-writer"),
    ):
        pass
    log.close()


def test_a_broker_that_gives_transactions_less_time_than_is_usual_is_asked_for_less_by_everyone(
    named: Named,
) -> None:
    allowed_ms = 20_000
    with start_broker(properties={"transaction.max.timeout.ms": str(allowed_ms)}) as hurried:
        log = open_log(StreamsConfig(bootstrap_servers=hurried.address))
        log.create_topic(named("out"))

        log.fence_producers(f"{named('writer')}-{number}" for number in range(12))
        session = log.open_producer({"transactional.id": named("writer")})
        session.begin_transaction()
        session.send(record(named("out"), b"a"), lambda *_: None)
        session.commit_transaction()
        session.close()

        assert_holds(log, TopicPartition(named("out"), 0), [b"a"])
        too_long = {"transaction.timeout.ms": str(allowed_ms + 1)}
        with pytest.raises(BrokerError, match=r"max\.transaction\.timeout\.ms"):
            log.open_producer({"transactional.id": named("writer"), **too_long})
        log.close()


def test_a_process_that_is_killed_leaves_nothing_open(
    broker: RunningBroker, direct: Broker, out: TopicPartition, marker: TopicPartition
) -> None:
    program = (
        "import sys, time\n"
        "from confluent_kafka import Producer\n"
        "producer = Producer({'bootstrap.servers': sys.argv[1], 'transactional.id': sys.argv[2]})\n"
        "producer.init_transactions()\n"
        "producer.begin_transaction()\n"
        "producer.produce(sys.argv[3], b'zombie', partition=0)\n"
        "producer.flush()\n"
        "print('open', flush=True)\n"
        "time.sleep(600)\n"
    )
    names = [broker.address, f"{out.topic}-writer", out.topic]
    child = subprocess.Popen([sys.executable, "-c", program, *names], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    direct.append([record(out.topic, b"hidden")])
    assert direct.end_offsets([out]) == {out: 0}

    direct.fence_producers([f"{out.topic}-writer"])

    assert_holds(direct, out, [b"hidden"])


def test_ending_transactions_does_not_wait_for_ever(proxy: TcpProxy, broker: RunningBroker) -> None:
    log = through(proxy, HASTY)
    proxy.stall()

    with pytest.raises(BrokerUnavailableError, match=proxy.address):
        log.fence_producers([f"id-{number}" for number in range(50)])
    log.close()


def test_a_member_of_a_group_commits_and_leaves_in_time(
    proxy: TcpProxy, direct: Broker, out: TopicPartition, named: Named
) -> None:
    direct.append([record(out.topic, b"a")])
    log = through(proxy, HASTY)
    lost: list[list[TopicPartition]] = []
    session = log.open_consumer(named("group"), {})
    session.subscribe(
        [out.topic],
        RebalanceListener(lambda names: dict.fromkeys(names, 0), lost.append, lost.append),
    )
    await_that(lambda: session.poll(1_000, 1), "the record")
    proxy.stall()

    with pytest.raises(BrokerUnavailableError, match="commit offsets"):
        session.commit({out: OffsetAndMetadata(1)})
    session.close()
    log.close()

    assert lost == [[out]]


def test_partitions_are_released_in_time_and_a_lost_commit_is_reported(
    proxy: TcpProxy, direct: Broker, out: TopicPartition, named: Named
) -> None:
    direct.append([record(out.topic, b"a")])
    failed: list[BrokerUnavailableError] = []
    errors: list[StreamsError | None] = []

    def revoked(consumer: KafkaConsumer[Any, Any], _: list[TopicPartition]) -> None:
        consumer.commit({out: 1})
        assert direct.committed_offsets(named("group"), [out]) == {out: OffsetAndMetadata(1)}
        proxy.stall()
        with pytest.raises(BrokerUnavailableError, match="commit offsets") as caught:
            consumer.commit({out: 2})
        failed.append(caught.value)

    with KafkaConsumer(
        key=str,
        value=str,
        bootstrap_servers=proxy.address,
        request_timeout=HURRIED,
        group_id=named("group"),
        auto_offset_reset="earliest",
        heartbeat_interval="100ms",
    ) as consumer:
        consumer.subscribe([out.topic], on_revoked=revoked)
        poll_until(
            consumer,
            lambda: bool(consumer.assignment()),
            "a partition",
            found=consumer.assignment,
        )
        other = direct.open_consumer(named("group"), {})
        nobody = RebalanceListener(
            lambda names: dict.fromkeys(names, 0), lambda _: None, lambda _: None
        )
        other.subscribe([out.topic], nobody)
        other.poll(0, 1)

        def has_failed() -> bool:
            # It may still be under way when the group takes the partition back.
            consumer.commit_async({out: 0}, lambda _, error: errors.append(error))
            consumer.poll("10ms")
            return bool(failed)

        await_that(has_failed, "a commit that fails", found=lambda: errors)
        done = len(errors)
        consumer.commit_async({out: 3}, lambda _, error: errors.append(error))
    other.close()

    assert set(errors[:done]) == {None}
    assert isinstance(errors[-1], BrokerUnavailableError)


def asked_in_vain(log: Broker, out: TopicPartition) -> list[Callable[[], Any]]:
    return [
        log.list_topics,
        lambda: log.partition_count(out.topic),
        lambda: log.end_offsets([out]),
        lambda: list(log.read(out, 0, 1)),
        lambda: log.committed_offsets("group", [out]),
        lambda: log.committed_offsets("group"),
        lambda: log.describe_group("group"),
        lambda: log.delete_group("group"),
        log.list_groups,
        lambda: log.commit_offsets("group", {out: OffsetAndMetadata(1)}),
        lambda: log.append([record(out.topic, b"never")]),
    ]


def test_everything_that_is_asked_of_a_broker_out_of_reach_ends(
    proxy: TcpProxy, direct: Broker, out: TopicPartition
) -> None:
    direct.append([record(out.topic, b"a")])
    log = through(proxy, HASTY)
    assert_holds(log, out, [b"a"])
    log.append([record(out.topic, b"b")])
    log.committed_offsets("group", [out])
    proxy.stall()

    for ask in asked_in_vain(log, out):
        with pytest.raises(BrokerUnavailableError, match=proxy.address):
            ask()
    log.close()

    proxy.heal()
    assert_holds(direct, out, [b"a", b"b"])


# The errors are kept, with everything that they hold on to, until the broker is back.
GIVEN_UP = """
import sys, time
from headrace import BrokerUnavailableError, StreamsConfig
from headrace.brokers import open_log

log = open_log(StreamsConfig(bootstrap_servers=sys.argv[1], request_timeout="1500ms"))
kept = []
for ask in (log.describe_group, log.delete_group, log.committed_offsets):
    try:
        ask(sys.argv[2])
    except BrokerUnavailableError as error:
        kept.append(error)
print(len(kept), flush=True)
sys.stdin.readline()
time.sleep(2)
again = open_log(StreamsConfig(bootstrap_servers=sys.argv[1], request_timeout="60s"))
print(again.describe_group(sys.argv[2]), again.committed_offsets(sys.argv[2]), flush=True)
"""


@pytest.mark.parametrize("request_", [Request.METADATA, Request.FIND_COORDINATOR], ids=case_name)
def test_a_timed_out_request_about_a_group_does_no_harm_later(
    proxy: TcpProxy, broker: RunningBroker, named: Named, request_: Request
) -> None:
    proxy.on_request(request_, proxy.stall)
    command = [sys.executable, "-c", GIVEN_UP, proxy.address, named("group")]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None

    assert child.stdout.readline() == b"3\n"
    proxy.heal()
    answered, said = child.communicate(b"\n", timeout=PATIENCE)

    assert (child.returncode, answered) == (0, b"[] {}\n"), said


@pytest.mark.parametrize(
    ("request_", "arrives"),
    [(Request.PRODUCE, True), (Request.END_TRANSACTION, True)],
    ids=case_name,
)
def test_a_broker_that_is_killed_and_comes_back_finishes_the_batch(
    proxy: TcpProxy,
    broker: RunningBroker,
    direct: Broker,
    out: TopicPartition,
    marker: TopicPartition,
    request_: Request,
    arrives: bool,
) -> None:
    def restart() -> None:
        broker.kill()
        broker.start()

    log = through(proxy, PATIENT)
    proxy.on_request(request_, restart, arrives=arrives)

    write(log, out, marker)
    log.close()

    assert proxy.trapped.is_set()
    assert_written_once(direct, out, marker)
