"""A run that leads, and cannot start yet: it keeps leadership, and may be started again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headrace import LeadershipLostError, StreamsBuilder, StreamsConfig, StreamsError
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.sessions import Broker
from headrace.clients import ResetTo
from headrace.clients.offsets import plan_group_reset
from headrace.errors import BrokerUnavailableError, CheckpointError
from headrace.runtime.checkpoint.markers import parse_marker
from headrace.runtime.leadership import (
    LeaderNote,
    advising_standbys,
    committed_leader_epoch,
    locks_of,
)
from headrace.spark import runner
from headrace.spark.runner import Run
from tests.application_home import embedded_home


@pytest.fixture(autouse=True)
def queries(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The queries that were started, without Spark."""
    started: list[object] = []

    def start(*_: Any) -> SimpleNamespace:
        started.append(query := SimpleNamespace(isActive=True, stop=lambda: None))
        return query

    session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    monkeypatch.setattr(runner, "start_query", start)
    monkeypatch.setattr(runner, "open_session", lambda *_: session)
    return started


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Broker]:
    opened = open_log(StreamsConfig(application_id="app", state_dir=tmp_path))
    opened.create_topic("in", partitions=3)
    yield opened
    opened.close()


def run_of(folder: Path) -> Run:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    return Run(builder.build(), StreamsConfig(application_id="app", state_dir=folder))


@pytest.fixture
def standby(tmp_path: Path, log: Broker) -> Iterator[Run]:
    """A run whose leader has just gone."""
    leader, made = run_of(tmp_path), run_of(tmp_path)
    assert leader.start()
    assert not made.start()
    leader.release()
    yield made
    made.release()


def failing_once(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    """Raise an error the first time that the runner calls something."""
    real: Callable[..., Any] = getattr(runner, name)

    def fail(*_: Any) -> None:
        monkeypatch.setattr(runner, name, real)
        raise error

    monkeypatch.setattr(runner, name, fail)


@pytest.mark.parametrize("name", ["prepare", "check_checkpoint", "start_query"])
def test_a_leader_that_cannot_start_keeps_leadership_and_starts_later(
    standby: Run,
    log: Broker,
    tmp_path: Path,
    queries: list[object],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    failing_once(monkeypatch, name, BrokerUnavailableError("No answer."))
    before = standby.leads()

    with pytest.raises(StreamsError, match="No answer"):
        standby.take_over(0)
    leader_epoch = committed_leader_epoch(log, "app")
    other = run_of(tmp_path)
    assert not other.start()
    other.release()

    assert standby.take_over(0)
    assert (before, standby.leads()) == (False, True)
    assert committed_leader_epoch(log, "app") == leader_epoch
    assert len(queries) == 2
    assert len(list(embedded_home(tmp_path).work.glob("run-*"))) == 1


def test_a_process_that_fails_at_its_first_start_lets_others_lead(
    log: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once(monkeypatch, "prepare", BrokerUnavailableError("No answer."))
    first, second = run_of(tmp_path), run_of(tmp_path)

    with pytest.raises(BrokerUnavailableError):
        first.start()

    assert not first.leads()
    assert second.start()
    second.release()


def test_a_leader_replaced_before_its_start_does_not_disturb_the_next(
    standby: Run, log: Broker, queries: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once(monkeypatch, "prepare", BrokerUnavailableError("No answer."))
    with pytest.raises(BrokerUnavailableError):
        standby.take_over(0)
    name = TopicPartition("app-leader", 0)
    next_one = OffsetAndMetadata(committed_leader_epoch(log, "app") + 1)
    log.commit_offsets(name.topic, {name: next_one})
    ended: list[object] = []
    monkeypatch.setattr(EmbeddedLog, "fence_producers", lambda _, ids: ended.extend(ids))

    with pytest.raises(LeadershipLostError):
        standby.take_over(0)

    assert ended == []
    assert len(queries) == 1


def test_a_process_that_lost_leadership_prepares_nothing(
    standby: Run, queries: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once(monkeypatch, "prepare", BrokerUnavailableError("No answer."))
    with pytest.raises(BrokerUnavailableError):
        standby.take_over(0)
    failing_once(monkeypatch, "prepare", AssertionError("It was prepared."))
    monkeypatch.setattr("headrace.runtime.leadership.LockLeadership.is_lost", lambda _: True)

    with pytest.raises(LeadershipLostError):
        standby.take_over(0)

    assert len(queries) == 1


def test_no_reset_is_advised_for_the_group_of_an_application_that_runs(
    tmp_path: Path, log: Broker
) -> None:
    leader = run_of(tmp_path)
    assert leader.start()

    with pytest.raises(StreamsError, match="whose state must be reset") as running:
        plan_group_reset(log, "app", ResetTo("earliest"))
    leader.release()
    with pytest.raises(StreamsError, match="whose state must be reset") as stopped:
        plan_group_reset(log, "app", ResetTo("earliest"))

    assert "runs it. Stop that process first." in running.value.remedy
    assert "headrace reset" not in str(running.value)
    assert stopped.value.remedy == "Use `headrace reset app`."


def test_no_reset_is_advised_for_unreadable_markers_while_a_process_runs_the_application(
    tmp_path: Path, log: Broker
) -> None:
    leader = run_of(tmp_path)
    assert leader.start()
    foreign = OffsetAndMetadata(3, "of another program")

    with (
        pytest.raises(CheckpointError, match="has offsets that Headrace did not commit") as caught,
        advising_standbys(log, embedded_home(tmp_path)),
    ):
        parse_marker(foreign, "app")

    leader.release()
    assert "To stand by for that process" in caught.value.remedy
    assert "headrace reset" not in str(caught.value)


def test_a_link_to_the_folder_of_a_leader_is_the_same_folder(tmp_path: Path, log: Broker) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    leader, standby = run_of(link), run_of(tmp_path)
    assert leader.start()

    with advising_standbys(log, embedded_home(tmp_path)):
        assert not standby.start()

    leader.release()
    standby.release()
    assert len(locks_of(log, embedded_home(tmp_path))) == 1


def test_a_link_that_an_earlier_leader_has_noted_is_the_same_folder(
    tmp_path: Path, log: Broker
) -> None:
    link, home = tmp_path / "link", embedded_home(tmp_path)
    link.symlink_to(tmp_path)
    home.create()
    noted = msgspec.json.encode(LeaderNote(folder=str(embedded_home(link).work))).decode()
    log.create_topic("app-leader")
    log.commit_offsets("app-leader", {TopicPartition("app-leader", 0): OffsetAndMetadata(1, noted)})

    with home.lock(log="log"), advising_standbys(log, home):
        pass

    assert len(locks_of(log, home)) == 1
