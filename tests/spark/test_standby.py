"""A second process stands by on real Spark, takes over what the first leaves, and repeats nothing.

The first runs in a process of its own, the second in this one: its Java is there already.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from chaos.processes import Session
from headrace import (
    BrokerError,
    CheckpointInUseError,
    KafkaStreams,
    State,
    StreamsBuilder,
    Topology,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from tests.kafka_broker import RunningBroker
from tests.spark.hosts import await_that

pytestmark = pytest.mark.usefixtures("java")

SESSION_MS = 3_000
PARTITIONS = 2
KEYS = 4

_NUMBERS = count()

FIRST = """
import json, sys
from headrace import KafkaStreams
from tests.spark.test_standby import counting
name, settings = sys.argv[1:]
sys.exit(KafkaStreams(counting(name), json.loads(settings)).run())
"""


def counting(name: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-in", key=str, value=str)
    words.group_by_key().count(materialized="counts").to_stream().to(f"{name}-out")
    return builder.build()


class Application:
    """An application that counts, with what it is given and what it has written."""

    def __init__(self, folder: Path, servers: str | None) -> None:
        self.name = f"standby-{next(_NUMBERS)}"
        self.settings = {
            "application.id": self.name,
            "state.dir": str(folder),
            "num.stream.threads": "2",
            "statestore.cache.max.bytes": "0",
            "consumer.session.timeout.ms": str(SESSION_MS),
        }
        if servers is not None:
            self.settings["bootstrap.servers"] = servers
        self.second = self.made()
        self.log = open_log(self.second.config)
        for topic in (f"{self.name}-in", f"{self.name}-out"):
            self.log.create_topic(topic, partitions=PARTITIONS)
        self.given = 0

    def made(self) -> KafkaStreams:
        return KafkaStreams(counting(self.name), self.settings)

    @contextmanager
    def first(self) -> Iterator[subprocess.Popen[str]]:
        """The application in another process, with its Java and its workers."""
        command = [sys.executable, "-c", FIRST, self.name, json.dumps(self.settings)]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            self.give(10)
            await_that(lambda: self.written() == self.given, "the first to work")
            yield process
        finally:
            Session(process.pid).kill()
            process.communicate()

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
        """Return all that was written, by key."""
        names = [TopicPartition(f"{self.name}-out", p) for p in range(PARTITIONS)]
        found = defaultdict[bytes | None, list[int]](list)
        for name, end in self.log.end_offsets(names).items():
            for records in self.log.read(name, 0, end):
                for each in records:
                    found[each.key].append(int.from_bytes(each.value or b""))
        return dict(found)

    def written(self) -> int:
        """Return how many results the key has that has fewest."""
        found = self.results()
        return min(map(len, found.values())) if len(found) == KEYS else 0

    def stands_by(self) -> None:
        """Let the second start, and see that it waits."""
        self.second.start()
        assert self.second.state() is State.REBALANCING
        assert (self.second.leader() or "").startswith("Process ")
        assert self.second.lag() == {}

    def assert_each_once(self) -> None:
        """Wait until all is counted, and see that nothing was lost or repeated."""
        try:
            await_that(lambda: self.written() >= self.given, "all results", self.second)
        except AssertionError as error:
            found = {key: len(counts) for key, counts in self.results().items()}
            error.add_note(f"Found {found} of {self.given} for each key.")
            raise
        expected = list(range(1, self.given + 1))
        assert self.results() == {b"k%d" % key: expected for key in range(KEYS)}


@pytest.fixture
def application(servers: str | None, tmp_path: Path) -> Iterator[Application]:
    yield from applications(tmp_path, servers)


@pytest.fixture
def on_kafka(kafka: RunningBroker, tmp_path: Path) -> Iterator[Application]:
    yield from applications(tmp_path, kafka.address)


def applications(folder: Path, servers: str | None) -> Iterator[Application]:
    made = Application(folder, servers)
    yield made
    if not made.second.state().has_ended():
        made.second.close("60s")
    made.log.close()


def test_a_standby_takes_over_from_a_process_that_was_killed(application: Application) -> None:
    with application.first() as first:
        application.stands_by()
        application.give(2_000)

        Session(first.pid).kill()
        application.give(10)

        application.assert_each_once()
    assert application.second.state() is State.RUNNING
    assert application.second.leader() is None


def test_a_process_that_was_stopped_and_taken_over_ends_when_it_wakes(
    on_kafka: Application,
) -> None:
    with on_kafka.first() as first:
        on_kafka.stands_by()
        on_kafka.give(2_000)

        everything = Session(first.pid)
        stopped = everything.stop(everything.pids())
        on_kafka.assert_each_once()
        everything.go_on(stopped)
        on_kafka.give(10)
        _, said = first.communicate(timeout=60)

        assert first.returncode == 1
        assert f"Another process has taken over application {on_kafka.name!r}" in said
        on_kafka.assert_each_once()
    assert on_kafka.second.state() is State.RUNNING


def test_an_orderly_end_hands_over(application: Application) -> None:
    first = application.made()
    first.start()
    application.give(5)
    await_that(lambda: application.written() == 5, "the first to work", first)
    application.stands_by()

    with pytest.raises((CheckpointInUseError, BrokerError)):
        application.made().clean_up()
    assert first.close("60s")
    application.give(5)

    application.assert_each_once()


def test_a_standby_that_is_closed_leaves_the_leader_alone(application: Application) -> None:
    first = application.made()
    with first:
        application.stands_by()

        assert application.second.close()
        assert application.second.state() is State.NOT_RUNNING
        application.give(5)
        await_that(lambda: application.written() == 5, "the first to work", first)
