"""A standby on real Spark takes over when the leader ends, and repeats nothing.

The first runs in a process of its own, the second in this one: its Java is there already.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.processes import Session
from headrace import (
    ApplicationShutdownError,
    BrokerError,
    CheckpointInUseError,
    DeserializationError,
    State,
    StreamsConfig,
    StreamThreadExceptionResponse,
)
from headrace.brokers import open_log
from tests.kafka_broker import RunningBroker
from tests.spark.counting_application import SETTINGS, CountingApplication
from tests.unique_names import unique
from tests.waiting import PATIENCE, PATIENTLY

pytestmark = pytest.mark.usefixtures("java")

SESSION_MS = 3_000


class Application(CountingApplication):
    """An application that counts, here and in another process."""

    def __init__(self, folder: Path, servers: str | None) -> None:
        settings = {
            "application.id": unique("standby"),
            "state.dir": str(folder),
            "consumer.session.timeout.ms": str(SESSION_MS),
            **SETTINGS,
        }
        if servers is not None:
            settings["bootstrap.servers"] = servers
        super().__init__(settings, open_log(StreamsConfig.from_properties(settings)))
        self.second = self.made()

    def stands_by(self) -> None:
        """Start the second process, and see that it waits."""
        self.second.start()
        assert self.second.state() is State.REBALANCING
        assert (self.second.leader() or "").startswith("Process ")
        assert self.second.lag() == {}


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
        made.second.close(PATIENTLY)
    made.log.close()


@pytest.mark.nightly("standby")
@pytest.mark.parametrize("servers", ["kafka", "embedded"], indirect=True)
def test_a_standby_takes_over_from_a_process_that_was_killed(application: Application) -> None:
    with application.alone() as first:
        application.stands_by()
        application.give(2_000)

        Session(first.pid).kill()
        application.give(10)

        application.assert_each_once(application.second)
    assert application.second.state() is State.RUNNING
    assert application.second.leader() is None


@pytest.mark.nightly("standby")
def test_a_stopped_process_that_lost_leadership_ends_when_it_wakes(
    on_kafka: Application,
) -> None:
    with on_kafka.alone(stderr=subprocess.PIPE) as first:
        on_kafka.stands_by()
        on_kafka.give(2_000)

        everything = Session(first.pid)
        stopped = everything.stop(everything.pids())
        on_kafka.assert_each_once(on_kafka.second)
        everything.resume(stopped)
        on_kafka.give(10)
        _, said = first.communicate(timeout=PATIENCE)

        assert first.returncode == 1
        assert f"Another process has taken over application {on_kafka.name!r}" in said
        on_kafka.assert_each_once(on_kafka.second)
    assert on_kafka.second.state() is State.RUNNING


@pytest.mark.nightly("standby")
def test_an_orderly_end_hands_over(application: Application) -> None:
    first = application.made()
    first.start()
    application.give(5)
    application.assert_each_once(first)
    application.stands_by()

    with pytest.raises((CheckpointInUseError, BrokerError)):
        application.made().clean_up()
    assert first.close(PATIENTLY)
    application.give(5)

    application.assert_each_once(application.second)


@pytest.mark.nightly("standby")
def test_a_shutdown_of_the_application_ends_its_standbys_too(
    application: Application,
) -> None:
    first = application.made()
    first.set_uncaught_exception_handler(
        lambda _error: StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
    )
    first.start()
    application.stands_by()

    application.log.append([(f"{application.name}-in", 0, 1, b"\xff", b"no text", None)])

    with pytest.raises(DeserializationError):
        first.await_termination(PATIENTLY)
    with pytest.raises(ApplicationShutdownError, match="has shut down application"):
        application.second.await_termination(PATIENTLY)
    assert application.second.state() is State.ERROR


@pytest.mark.nightly("standby")
def test_a_standby_that_is_closed_leaves_the_leader_alone(application: Application) -> None:
    first = application.made()
    with first:
        application.stands_by()

        assert application.second.close()
        assert application.second.state() is State.NOT_RUNNING
        application.give(5)
        application.assert_each_once(first)
