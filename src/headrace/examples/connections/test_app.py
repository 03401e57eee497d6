"""Which node has which connection when nodes come and go, and what becomes of bad input."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, combinations
from pathlib import Path
from typing import Never

import pytest

from headrace import KafkaStreams, StreamsError
from headrace.examples.checking import DriverRun, Fate, fates_of, in_process, on_driver
from headrace.examples.connections.app import app, topology
from headrace.examples.connections.cluster import Cluster
from headrace.examples.connections.feed import NODES, START, TOPICS, second
from headrace.examples.connections.model import (
    CONNECTIONS,
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

    def send(self, topic: str, key: str, value: HeartBeat) -> Never:
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
        wait_until_whole(cluster, run.query.batch)
        assert sorted(cluster.deployments()) == ["node-1", "node-3"]


def wait_until_whole(cluster: Cluster, run_batch: Callable[[], object]) -> None:
    """Run batches until each connection is on exactly one living node."""
    end = time.monotonic() + BREAK_AFTER
    while not cluster.is_whole():
        run_batch()
        assert time.monotonic() < end, cluster.deployments()
