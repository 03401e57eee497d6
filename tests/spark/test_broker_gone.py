"""The broker of a running application dies, for good or for a while, or ends its transactions.

Each application has its Spark in a process of its own where processes are stopped, and shares the
Java of the tests elsewhere. The broker is theirs alone: others would miss it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from chaos.processes import Session, lives
from headrace import (
    BrokerUnavailableError,
    KafkaStreams,
    State,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    Topology,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from tests.kafka_broker import RunningBroker, start_broker
from tests.spark.hosts import await_that
from tests.tcp_proxy import Request, TcpProxy

pytestmark = pytest.mark.usefixtures("java")

PARTITIONS = 2
KEYS = 4
EXPIRY_MS = 2_000
ERROR_SECONDS = 45.0
"""Ten times what the settings of an application allow: the machine may be busy."""

_NUMBERS = count()

ALONE = """
import json, sys
from headrace import KafkaStreams
from tests.spark.test_broker_gone import counting
name, settings = sys.argv[1:]
sys.exit(KafkaStreams(counting(name), json.loads(settings)).run())
"""


def counting(name: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-in", key=str, value=str)
    words.group_by_key().count(materialized="counts").to_stream().to(f"{name}-out")
    return builder.build()


@pytest.fixture(scope="module")
def proxy() -> Iterator[TcpProxy]:
    with TcpProxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def broker_of_all(proxy: TcpProxy) -> Iterator[RunningBroker]:
    # Expired transactions are looked for every ten seconds, if nobody says otherwise.
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


class Application:
    """An application that counts, with what it is given and what it has written."""

    def __init__(
        self, broker: RunningBroker, folder: Path, servers: str | None = None, **settings: str
    ) -> None:
        self.name = f"gone-{next(_NUMBERS)}"
        self.settings = {
            "application.id": self.name,
            "bootstrap.servers": servers or broker.address,
            "state.dir": str(folder),
            "num.stream.threads": "2",
            "statestore.cache.max.bytes": "0",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        # Who only gives and looks has more patience than the application.
        self.log = open_log(
            StreamsConfig(application_id=f"{self.name}-test", bootstrap_servers=broker.address)
        )
        self._admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        for topic in (f"{self.name}-in", f"{self.name}-out"):
            self.log.create_topic(topic, partitions=PARTITIONS)
        self.outputs = [TopicPartition(f"{self.name}-out", p) for p in range(PARTITIONS)]
        # A new broker takes longer for its first transaction than the application may wait.
        with self.log.transaction(f"{self.name}-test"):
            pass
        self.given = 0

    @contextmanager
    def running(self) -> Iterator[KafkaStreams]:
        """The application in this process, once it has counted something."""
        streams = KafkaStreams(counting(self.name), self.settings)
        streams.start()
        try:
            self.give(5)
            self.assert_each_once(streams)
            yield streams
        finally:
            with suppress(StreamsError):
                streams.close("60s")
            self.log.close()

    @contextmanager
    def alone(self) -> Iterator[Session]:
        """The application in a process of its own, once it has counted something."""
        command = [sys.executable, "-c", ALONE, self.name, json.dumps(self.settings)]
        process = subprocess.Popen(command, start_new_session=True)
        session = Session(process.pid)
        try:
            self.give(5)
            self.assert_each_once()
            yield session
            assert process.poll() is None, "it has ended by itself"
        finally:
            session.kill()
            process.wait()
            self.log.close()

    def give(self, records: int) -> None:
        """Write so many more records of each key."""
        self.given += records
        self.log.append(
            [
                (f"{self.name}-in", key % PARTITIONS, 1, b"k%d" % key, b"v", None)
                for _ in range(records)
                for key in range(KEYS)
            ]
        )

    def results(self) -> dict[bytes | None, list[int]]:
        """Return all that was written and committed, by key."""
        found = defaultdict[bytes | None, list[int]](list)
        for name, end in self.log.end_offsets(self.outputs).items():
            for records in self.log.read(name, 0, end):
                for each in records:
                    found[each.key].append(int.from_bytes(each.value or b""))
        return dict(found)

    def assert_each_once(self, streams: KafkaStreams | None = None) -> None:
        """Wait until all is counted, and see that nothing was lost or repeated."""

        def is_all_there() -> bool:
            found = self.results()
            return len(found) == KEYS and min(map(len, found.values())) >= self.given

        await_that(is_all_there, f"{self.given} results for each key", streams)
        expected = list(range(1, self.given + 1))
        assert self.results() == {b"k%d" % key: expected for key in range(KEYS)}

    def has_open_transaction(self) -> bool:
        """Return whether its output ends in a transaction that nobody has ended."""
        ends = self._ends(IsolationLevel.READ_COMMITTED)
        return ends != self._ends(IsolationLevel.READ_UNCOMMITTED)

    def _ends(self, level: IsolationLevel) -> list[int]:
        names = {KafkaPartition(*name): OffsetSpec.latest() for name in self.outputs}
        found = self._admin.list_offsets(names, isolation_level=level)
        return [answer.result().offset for answer in found.values()]


@pytest.mark.timeout(120)
def test_an_application_goes_on_when_its_broker_comes_back_in_time(
    broker: RunningBroker, tmp_path: Path
) -> None:
    application = Application(broker, tmp_path, request_timeout_ms="2000", task_timeout_ms="60000")
    with application.running() as streams:
        application.give(2_000)
        broker.kill()
        await_that(lambda: streams.state() is State.REBALANCING, "the query to fail", streams)

        broker.start()
        broker.await_ready()
        application.give(10)

        application.assert_each_once(streams)
        await_that(lambda: streams.state() is State.RUNNING, "it to run", streams)
        assert streams.close("60s")


@pytest.mark.timeout(180)
def test_a_transaction_that_expires_while_its_writer_is_stopped_is_written_once(
    broker: RunningBroker, proxy: TcpProxy, tmp_path: Path
) -> None:
    expiry = str(EXPIRY_MS)
    application = Application(
        broker, tmp_path, proxy.address, producer_transaction_timeout_ms=expiry
    )
    with application.alone() as session:
        for who in (session.workers, session.pids):
            stopped: list[int] = []
            # The last request of a transaction before its end.
            proxy.on_request(Request.COMMIT_OFFSETS, partial(stop, session, who, stopped))
            application.give(500)

            await_that(proxy.trapped.is_set, "a transaction")
            await_that(application.has_open_transaction, "its records")
            await_that(lambda: not application.has_open_transaction(), "its end by the broker")
            session.go_on(stopped)
            application.give(10)

            application.assert_each_once()


@pytest.mark.timeout(120)
def test_an_application_whose_broker_is_gone_for_good_ends_and_names_it(
    broker: RunningBroker, tmp_path: Path
) -> None:
    application = Application(broker, tmp_path, request_timeout_ms="2000", task_timeout_ms="3000")
    with application.running() as streams:
        application.give(1_000)
        broker.kill()
        killed = time.monotonic()

        await_that(lambda: streams.state() is State.ERROR, "the error")
        took = time.monotonic() - killed

        with pytest.raises(BrokerUnavailableError, match=f"The broker at {broker.address} "):
            streams.close("10s")
    assert took < ERROR_SECONDS


def stop(session: Session, who: Callable[[], list[int]], stopped: list[int]) -> None:
    """Let processes stand still, and remember which."""
    stopped += session.stop(who())
