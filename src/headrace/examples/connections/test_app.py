"""Which node has which connection when nodes come and go, and what becomes of bad input."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import KafkaStreams, StreamsError
from headrace.clients import AdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from headrace.examples.checking import DriverRun, Fate, fates_of, in_process, on_driver
from headrace.examples.connections.app import app, topology
from headrace.examples.connections.cluster import Cluster
from headrace.examples.connections.feed import NODES, START, TOPICS, second
from headrace.examples.connections.model import (
    CONNECTIONS,
    ConnectionDeploymentScheme,
    HeartBeat,
    HeartBeatsList,
    recalculate,
)
from headrace.examples.connections.node import ConnectionManager, send_heartbeats
from headrace.examples.feeding import FeedRecord

GOOD = FeedRecord("heartbeats", "tick", HeartBeat("node-1", [], START), START)
BREAK_AFTER = 100
"""Seconds; a busy machine takes long."""


def beats_of(nodes: dict[str, list[str]]) -> HeartBeatsList:
    return HeartBeatsList({node: HeartBeat(node, has, START) for node, has in nodes.items()})


def pass_seconds(run: DriverRun, first: int, last: int) -> list[dict[str, list[str]]]:
    """Let seconds pass with their heartbeats, and return the new schemes."""
    for number in range(first, last + 1):
        run.driver.advance_wall_clock_time("1s")
        run.write(second(number))
    schemes = run.read("connection-deployment-scheme")
    assert {each.key for each in schemes} <= {"tick"}
    return [each.value.deployments for each in schemes]


def test_a_scheme_comes_when_the_next_window_begins() -> None:
    with on_driver(app) as run:
        assert pass_seconds(run, 1, 4) == []
        assert pass_seconds(run, 5, 5) == [NODES]
        assert pass_seconds(run, 6, 10) == [NODES]


def test_within_two_windows_the_connections_of_a_silent_node_are_on_others() -> None:
    with on_driver(app) as run:
        pass_seconds(run, 1, 12)  # node-2 falls silent in the window from 10 to 15

        with_it, without_it = pass_seconds(run, 13, 20)
        assert with_it == NODES
        assert without_it == {
            "node-1": ["smsc-1", "smsc-2", "smsc-3"],
            "node-3": ["smsc-4", "smsc-5", "smsc-6"],
        }


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_connection_is_on_one_node_whatever_the_nodes_have(count: int) -> None:
    for living in combinations(NODES, count):
        for has in ([], CONNECTIONS, ["smsc-1", "unknown"]):
            scheme = recalculate(beats_of(dict.fromkeys(living, has)))

            assert sorted(scheme.deployments) == sorted(living)
            assert sorted(chain(*scheme.deployments.values())) == CONNECTIONS
            sizes = {len(each) for each in scheme.deployments.values()}
            assert max(sizes) - min(sizes) <= 1


def test_the_wrong_clock_of_a_node_makes_no_other_node_look_dead() -> None:
    with on_driver(app) as run:
        run.write([GOOD._replace(timestamp=START + 10**9), *second(1)])
        run.driver.advance_wall_clock_time("5s")
        run.write([GOOD])

        [scheme] = run.read("connection-deployment-scheme")
        assert sorted(scheme.value.deployments) == ["node-1", "node-2", "node-3"]


class EndError(Exception):
    """Ends the heartbeats of a test."""


class FailingProducer:
    """A producer whose first record is not written."""

    def __init__(self) -> None:
        self.failures: Iterator[Exception] = iter([StreamsError("No answer."), EndError()])

    def __enter__(self) -> FailingProducer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, topic: str, key: str, value: HeartBeat) -> Any:
        assert (topic, key, value.node_id) == ("heartbeats", "tick", "node-1")
        raise next(self.failures)


def test_a_heartbeat_that_cannot_be_written_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = sys.modules[send_heartbeats.__module__]
    monkeypatch.setattr(module, "KafkaProducer", lambda *_, **__: FailingProducer())

    with pytest.raises(EndError):
        send_heartbeats(ConnectionManager("node-1"), app.config, every=0)

    assert capsys.readouterr().out == "node-1 cannot send its heartbeat: No answer.\n"


class CountingProducer(FailingProducer):
    """A producer that notes the time of each record, and fails after the third."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.sent: list[tuple[float, str, str]] = []

    def send(self, topic: str, key: str, value: HeartBeat) -> Any:
        assert value.node_id == "node-1"
        self.sent.append((self.clock.monotonic(), topic, key))
        self.clock.now += 0.25  # the broker takes its time
        if len(self.sent) == 3:
            raise EndError
        return SimpleNamespace(result=lambda: None)


class Clock:
    """A clock that passes only while somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return START * 1_000_000

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_heartbeats_have_the_key_tick_at_once_and_then_every_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, clock = sys.modules[send_heartbeats.__module__], Clock()
    producer = CountingProducer(clock)
    monkeypatch.setattr(module, "KafkaProducer", lambda *_, **__: producer)
    monkeypatch.setattr(module, "time", clock)

    with pytest.raises(EndError):
        send_heartbeats(ConnectionManager("node-1"), app.config)

    assert producer.sent == [(second, "heartbeats", "tick") for second in (0, 1, 2)]


def test_a_manager_acts_on_the_last_of_the_schemes_that_come_after_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = app.config.with_settings(state_dir=tmp_path)
    with AdminClient(config) as admin:
        admin.create_topic("connection-deployment-scheme")
    handled: list[dict[str, list[str]]] = []

    def note(_: ConnectionManager, scheme: ConnectionDeploymentScheme) -> None:
        handled.append(scheme.deployments)
        raise EndError

    def written(producer: KafkaProducer[str, ConnectionDeploymentScheme], *names: str) -> None:
        for name in names:
            scheme = ConnectionDeploymentScheme({"node-1": [name]})
            producer.send("connection-deployment-scheme", "tick", scheme).result()

    def assigned(consumer: KafkaConsumer[Any, Any], partitions: list[TopicPartition]) -> None:
        at_end(consumer, partitions)
        with KafkaProducer(config, key=str, value=ConnectionDeploymentScheme) as later:
            written(later, "second", "last")

    at_end = KafkaConsumer.seek_to_end
    monkeypatch.setattr(KafkaConsumer, "seek_to_end", assigned)
    monkeypatch.setattr(ConnectionManager, "handle_record", note)
    with KafkaProducer(config, key=str, value=ConnectionDeploymentScheme) as producer:
        written(producer, "first")

    with pytest.raises(EndError):
        ConnectionManager("node-1").run(config)

    assert handled == [{"node-1": ["last"]}]


def test_bad_input_is_counted_and_kept() -> None:
    assert fates_of(app, GOOD) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,  # the time is that of the rebalancer's clock
        "future": Fate.PROCESSED,
    }


def test_end_to_end_connections_of_a_killed_process_move_to_the_others(tmp_path: Path) -> None:
    quick = KafkaStreams(topology("1s"), app.config)
    topics = {**TOPICS, "connection-deployment-scheme": 1}

    with (
        in_process(quick, topics, tmp_path) as run,
        Cluster(list(NODES), run.query.config, every=0.1) as cluster,
    ):
        wait_until_whole(cluster, run.query.batch)
        assert sorted(cluster.deployments()) == ["node-1", "node-2", "node-3"]

        cluster.kill("node-2")
        assert not cluster.is_whole()
        run.query.batch()  # the last heartbeats of node-2
        run.read("connection-deployment-scheme")
        wait_until_whole(cluster, run.query.batch)
        assert sorted(cluster.deployments()) == ["node-1", "node-3"]
        schemes = [each.value for each in run.read("connection-deployment-scheme")]
        assert schemes, "the nodes follow a new scheme"
        # Only the window in which node-2 was killed may still have it.
        assert not any("node-2" in each.deployments for each in schemes[1:])


def wait_until_whole(cluster: Cluster, run_batch: Callable[[], object]) -> None:
    """Run batches until each connection is on exactly one living node."""
    end = time.monotonic() + BREAK_AFTER
    while not cluster.is_whole():
        run_batch()
        assert time.monotonic() < end, cluster.deployments()
