"""The broker of a running application dies, with or without a restart, or ends its transactions.

Each application has its Spark in a process of its own where processes are stopped, and shares the
Java of the tests elsewhere. The broker is theirs alone: others would miss it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from chaos.processes import Session, lives
from headrace import (
    BrokerUnavailableError,
    KafkaStreams,
    State,
    StreamsConfig,
    StreamsError,
)
from headrace.brokers import open_log
from headrace.topology.naming import markers_name
from tests.kafka_broker import RunningBroker, start_broker
from tests.spark.counting_application import PARTITIONS, SETTINGS, CountingApplication
from tests.spark.hosts import await_that
from tests.tcp_proxy import Request, TcpProxy
from tests.unique_names import unique
from tests.waiting import PATIENCE, PATIENTLY

pytestmark = [pytest.mark.usefixtures("java"), pytest.mark.nightly("faults")]

EXPIRY_MS = 2_000
LONGER_THAN_A_START = f"{1_000 * PATIENCE:.0f}"
"""How many milliseconds an application waits for a broker that starts on a busy machine."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[TcpProxy]:
    with TcpProxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def broker_of_all(proxy: TcpProxy) -> Iterator[RunningBroker]:
    # By default the broker searches for expired transactions every ten seconds.
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with start_broker(properties=often, proxy_port=proxy.port) as broker:
        proxy.lead_to(broker.behind_proxy)
        yield broker


@pytest.fixture
def broker(broker_of_all: RunningBroker) -> RunningBroker:
    """A broker that lives, whatever an earlier test did to it."""
    if not lives(broker_of_all.pid):
        broker_of_all.start()
        broker_of_all.await_ready()
    return broker_of_all


class Application(CountingApplication):
    """An application that counts on a broker that may go away."""

    def __init__(
        self, broker: RunningBroker, folder: Path, servers: str | None = None, **settings: str
    ) -> None:
        name = unique("gone")
        given = {each.replace("_", "."): value for each, value in settings.items()}
        place = {"bootstrap.servers": servers or broker.address, "state.dir": str(folder)}
        # The log of the test has longer timeouts than the application.
        log = open_log(StreamsConfig(application_id=name, bootstrap_servers=broker.address))
        super().__init__({"application.id": name, **place, **SETTINGS, **given}, log)
        self._admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        # A new broker takes longer for its first transaction than the application may wait.
        with log.transaction(f"{name}-test"):
            pass

    @contextmanager
    def running(self) -> Iterator[KafkaStreams]:
        """The application in this process, once it has counted something."""
        streams = self.made()
        streams.start()
        try:
            self.give(5)
            self.assert_each_once(streams)
            yield streams
        finally:
            with suppress(StreamsError):
                streams.close(PATIENTLY)
            self.log.close()

    def has_open_transaction(self) -> bool:
        """Return whether its output ends in an open transaction."""
        ends = self._ends(IsolationLevel.READ_COMMITTED)
        return ends != self._ends(IsolationLevel.READ_UNCOMMITTED)

    def _ends(self, level: IsolationLevel) -> list[int]:
        names = {KafkaPartition(*name): OffsetSpec.latest() for name in self.outputs}
        found = self._admin.list_offsets(names, isolation_level=level)
        return [answer.result().offset for answer in found.values()]


def test_an_application_resumes_when_its_broker_comes_back_in_time(
    broker: RunningBroker, tmp_path: Path
) -> None:
    application = Application(
        broker, tmp_path, request_timeout_ms="5000", task_timeout_ms=LONGER_THAN_A_START
    )
    with application.running() as streams:
        application.give(2_000)
        broker.kill()
        await_that(lambda: streams.state() is State.REBALANCING, "the query to fail", streams)

        broker.start()
        broker.await_ready()
        application.give(10)

        application.assert_each_once(streams)
        await_that(lambda: streams.state() is State.RUNNING, "it to run", streams)
        assert streams.close(PATIENTLY)


@contextmanager
def held_back(broker: RunningBroker, topic: str, group: str) -> Iterator[None]:
    """Offsets of a group wait for a transaction, as if the broker had lost its end."""
    settings = {"bootstrap.servers": broker.address}
    writer = Producer({**settings, "transactional.id": f"{group}-held-back"})
    writer.init_transactions()
    writer.begin_transaction()
    of_group = Consumer({**settings, "group.id": group}).consumer_group_metadata()
    names = [KafkaPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    writer.send_offsets_to_transaction(names, of_group)
    yield
    writer.abort_transaction()


def test_an_application_continues_if_a_broker_loses_the_end_of_a_transaction(
    broker: RunningBroker, tmp_path: Path
) -> None:
    application = Application(broker, tmp_path, request_timeout_ms="3000")
    markers = markers_name(application.name)
    with application.running() as streams, held_back(broker, markers, markers):
        application.give(10)

        application.assert_each_once(streams)
        assert streams.state() is State.RUNNING
        assert streams.close(PATIENTLY)


def test_a_transaction_that_expires_while_its_writer_is_stopped_is_written_once(
    broker: RunningBroker, proxy: TcpProxy, tmp_path: Path
) -> None:
    expiry = str(EXPIRY_MS)
    application = Application(
        broker, tmp_path, proxy.address, producer_transaction_timeout_ms=expiry
    )
    with application.alone() as process:
        session = Session(process.pid)
        for who in (session.workers, session.pids):
            stopped: list[int] = []
            # The last request of a transaction before its end.
            proxy.on_request(Request.COMMIT_OFFSETS, partial(stop, session, who, stopped))
            application.give(500)

            await_that(proxy.trapped.is_set, "a transaction")
            await_that(application.has_open_transaction, "its records")
            await_that(lambda: not application.has_open_transaction(), "its end by the broker")
            session.resume(stopped)
            application.give(10)

            application.assert_each_once()
        assert process.poll() is None, "it has ended by itself"
    application.log.close()


def test_an_application_whose_broker_is_gone_for_good_ends_and_names_it(
    broker: RunningBroker, tmp_path: Path
) -> None:
    application = Application(broker, tmp_path, request_timeout_ms="5000", task_timeout_ms="5000")
    with application.running() as streams:
        application.give(1_000)
        broker.kill()

        await_that(lambda: streams.state() is State.ERROR, "the error")

        with pytest.raises(BrokerUnavailableError, match=f"The broker at {broker.address} "):
            streams.close(PATIENTLY)


def stop(session: Session, who: Callable[[], list[int]], stopped: list[int]) -> None:
    """Stop processes, and remember which."""
    stopped += session.stop(who())
