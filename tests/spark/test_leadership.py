"""Leadership on both logs: one process leads, others stand by, and a replaced leader stops."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    ApplicationShutdownError,
    BrokerError,
    CheckpointInUseError,
    LeadershipLostError,
    StreamsConfig,
)
from headrace.brokers import open_log
from headrace.brokers.log import MemberDescription, OffsetAndMetadata, TopicPartition
from headrace.runtime.leadership import (
    Leadership,
    check_leadership,
    committed_leader_epoch,
    open_leadership,
)
from tests.application_home import home_of
from tests.kafka_broker import RunningBroker
from tests.spark.hosts import await_that
from tests.unique_names import unique
from tests.waiting import PATIENCE

SESSION_MS = 1_500
LONG_SESSION_MS = 60_000
"""For a leader that must stay: a busy machine may hold its heartbeats up."""

LEADER = """
import sys, time
from headrace import StreamsConfig
from headrace.runtime.leadership import open_leadership
from tests.application_home import home_of
name, folder, servers, session = sys.argv[1:]
settings = {"bootstrap_servers": servers} if servers else {}
config = StreamsConfig(
    application_id=name, state_dir=folder, consumer={"session.timeout.ms": session}, **settings
)
leadership = open_leadership(config, home_of(config))
assert leadership.wait(200)
print(leadership.leader_epoch, flush=True)
while not leadership.is_lost():
    time.sleep(0.05)
print("lost", flush=True)
"""


class Application:
    """An application that processes lead, without running it."""

    def __init__(self, folder: Path, servers: str | None) -> None:
        self.name, self.folder = unique("led"), folder
        settings: dict[str, Any] = {"bootstrap_servers": servers} if servers else {}
        self.config = StreamsConfig(
            application_id=self.name,
            state_dir=folder,
            consumer={"session.timeout.ms": str(SESSION_MS)},
            **settings,
        )
        self.log = open_log(self.config)
        self.opened: list[Leadership] = []

    def with_long_session(self) -> Application:
        consumer = {**self.config.consumer, "session.timeout.ms": str(LONG_SESSION_MS)}
        self.config = self.config.with_settings(consumer=consumer)
        return self

    def leadership(self) -> Leadership:
        self.opened.append(open_leadership(self.config, home_of(self.config)))
        return self.opened[-1]

    def members(self) -> Sequence[MemberDescription]:
        """Return who leads or stands by."""
        return self.log.describe_group(f"{self.name}-leader")

    @contextmanager
    def other_process(self) -> Iterator[tuple[subprocess.Popen[str], int]]:
        """Another process that leads, with its generation."""
        servers = self.config.bootstrap_servers or ""
        command = [sys.executable, "-c", LEADER, self.name, str(self.folder), servers]
        with subprocess.Popen(
            [*command, str(SESSION_MS)], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                yield process, int(process.stdout.readline())
            finally:
                process.kill()


@pytest.fixture
def application(servers: str | None, tmp_path: Path) -> Iterator[Application]:
    yield from applications(tmp_path, servers)


@pytest.fixture
def on_kafka(kafka: RunningBroker, tmp_path: Path) -> Iterator[Application]:
    yield from applications(tmp_path, kafka.address)


def applications(folder: Path, servers: str | None) -> Iterator[Application]:
    made = Application(folder, servers)
    yield made
    for leadership in made.opened:
        leadership.release()
    made.log.close()


def test_one_process_leads_and_the_next_follows_when_it_releases(application: Application) -> None:
    first = application.with_long_session().leadership()
    assert first.start_timeout is not None
    assert first.wait(PATIENCE)
    second = application.leadership()

    assert second.start_timeout is None
    assert not second.wait(0.3)
    assert second.leader() == first.leader() != "Another process"
    assert committed_leader_epoch(application.log, application.name) == first.leader_epoch
    check_leadership(application.log, application.name, first.leader_epoch)
    first.release()

    assert second.wait(PATIENCE)
    assert second.leader_epoch == first.leader_epoch + 1
    with pytest.raises(LeadershipLostError):
        check_leadership(application.log, application.name, first.leader_epoch)


def test_a_leader_that_ends_the_application_has_no_successor(application: Application) -> None:
    first = application.with_long_session().leadership()
    assert first.wait(PATIENCE)
    standbys = [application.leadership() for _ in range(2)]
    assert not any(standby.wait(0.3) for standby in standbys)
    leader = first.leader()

    first.release(whole_application=True)

    for standby in standbys:
        with pytest.raises(ApplicationShutdownError, match=f"^{leader} has shut down"):
            standby.wait(PATIENCE)
        assert standby.leader() == leader
        standby.release(whole_application=True)  # it never led: it has nothing to say
    assert committed_leader_epoch(application.log, application.name) == first.leader_epoch
    later = application.leadership()
    assert later.wait(PATIENCE)
    assert later.leader_epoch == first.leader_epoch + 1
    later.release()
    assert application.leadership().wait(PATIENCE)


def test_a_killed_leader_has_a_successor(application: Application) -> None:
    with application.other_process() as (leader, leader_epoch):
        standby = application.leadership()
        assert not standby.wait(0.3)

        leader.kill()

        assert standby.wait(PATIENCE)
    assert standby.leader_epoch == leader_epoch + 1
    assert not standby.is_lost()


def test_processes_that_name_their_consumers_alike_do_not_put_each_other_out(
    on_kafka: Application,
) -> None:
    named = {**on_kafka.config.consumer, "group.instance.id": "one"}
    on_kafka.config = on_kafka.config.with_settings(consumer=named)
    first = on_kafka.with_long_session().leadership()
    assert first.wait(PATIENCE)

    second = on_kafka.leadership()
    await_that(lambda: len(on_kafka.members()) == 2, "both to join")

    assert not second.wait(SESSION_MS / 1000)
    assert not first.is_lost()


def test_a_new_member_does_not_move_the_leadership(on_kafka: Application) -> None:
    first = on_kafka.with_long_session().leadership()
    assert first.wait(PATIENCE)

    standbys = [on_kafka.leadership() for _ in range(4)]
    await_that(lambda: len(on_kafka.members()) == 5, "all to join")

    assert not standbys[-1].wait(SESSION_MS / 1000)
    assert not any(standby.wait(0) for standby in standbys)
    assert not first.is_lost()
    check_leadership(on_kafka.log, on_kafka.name, first.leader_epoch)


def test_a_group_that_does_not_take_this_process_is_no_reason_to_stand_by(
    kafka: RunningBroker, tmp_path: Path
) -> None:
    shortest = int(kafka.properties["group.min.session.timeout.ms"])
    config = StreamsConfig(
        application_id=unique("led"),
        state_dir=tmp_path,
        bootstrap_servers=kafka.address,
        consumer={"session.timeout.ms": str(shortest - 1)},
    )
    leadership = open_leadership(config, home_of(config))

    with pytest.raises(BrokerError, match=rf"`session\.timeout\.ms` of {shortest - 1}"):
        leadership.wait(PATIENCE)

    leadership.release()


def test_a_stopped_process_finds_out_that_another_leads(on_kafka: Application) -> None:
    with on_kafka.other_process() as (leader, leader_epoch):
        standby = on_kafka.leadership()
        assert standby.start_timeout is None

        leader.send_signal(signal.SIGSTOP)
        assert standby.wait(PATIENCE)
        leader.send_signal(signal.SIGCONT)

        assert leader.stdout is not None
        assert leader.stdout.readline() == "lost\n"
    assert standby.leader_epoch == leader_epoch + 1
    assert not standby.is_lost()


def test_a_stopped_leader_without_a_standby_continues(on_kafka: Application) -> None:
    with on_kafka.other_process() as (leader, leader_epoch):
        leader.send_signal(signal.SIGSTOP)
        await_that(lambda: not on_kafka.members(), "its session to end")
        leader.send_signal(signal.SIGCONT)

        def goes_on() -> bool:
            return any(member.partitions for member in on_kafka.members())

        await_that(lambda: goes_on() or leader.poll() is not None, "its partition to come back")
        assert goes_on()
        check_leadership(on_kafka.log, on_kafka.name, leader_epoch)


def test_no_generation_comes_again_after_its_group_was_deleted(application: Application) -> None:
    first = application.leadership()
    assert first.wait(PATIENCE)
    first.release()
    name = TopicPartition(f"{application.name}-leader", 0)
    application.log.commit_offsets(name.topic, {name: OffsetAndMetadata(1)})
    second = application.leadership()
    assert second.wait(PATIENCE)
    second.release()

    application.log.delete_group(name.topic)
    third = application.leadership()

    assert third.wait(PATIENCE)
    assert third.leader_epoch > second.leader_epoch == 2


def test_the_same_state_is_not_used_with_another_file_as_log(tmp_path: Path) -> None:
    application = Application(tmp_path, None)
    elsewhere = application.config.with_settings(embedded_path=tmp_path / "elsewhere.db")
    assert application.leadership().wait(PATIENCE)

    with pytest.raises(CheckpointInUseError, match="Stop it first"):
        open_leadership(elsewhere, home_of(elsewhere))

    application.opened[0].release()
    application.log.close()
