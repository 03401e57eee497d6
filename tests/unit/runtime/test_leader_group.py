"""The group that chooses the leader: refusals raise, retriable errors are waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import AuthorizationError, BrokerError, StreamsConfig
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.sessions import RebalanceListener
from headrace.errors import (
    BrokerUnavailableError,
    CheckpointInUseError,
    CommitFailedError,
    UnknownTopicError,
)
from headrace.home import DirectoryLock
from headrace.runtime.checkpoint.markers import Marker
from headrace.runtime.leadership import GroupLeadership
from tests.application_home import embedded_home
from tests.waiting import PATIENCE, await_that


class Member:
    """A consumer in the group: some polls fail, then it is given the partition."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.polled = threading.Event()
        self.is_put_out = False

    def subscribe(self, topics: list[str], listener: RebalanceListener) -> None:
        self._partition, self._listener = TopicPartition(topics[0], 0), listener

    def poll(self, *_: object) -> list[Any]:
        if self.failures:
            raise self.failures.pop(0)
        notify = self._listener.lost if self.is_put_out else self._listener.assigned
        notify([self._partition])
        self.polled.set()
        time.sleep(0.001)
        return []

    def commit(self, *_: object) -> None:
        pass

    def wakeup(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def led_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Member], GroupLeadership]]:
    """Begins to ask for the leadership as a member of the group."""
    config = StreamsConfig(
        application_id="app", state_dir=tmp_path, consumer={"session.timeout.ms": "3000"}
    )
    made: list[GroupLeadership] = []

    def begin(member: Member) -> GroupLeadership:
        log = open_log(config)
        monkeypatch.setattr(log, "open_consumer", lambda *_: member, raising=False)
        home = embedded_home(tmp_path)
        made.append(GroupLeadership(config, home, log, home.lock(log="log")))
        return made[-1]

    yield begin
    for leadership in made:
        leadership.release()


@pytest.mark.parametrize(
    "refused", [BrokerError("JoinGroup failed: Invalid session timeout."), RuntimeError("Closed")]
)
def test_a_permanent_error_names_the_group_and_the_setting(
    led_by: Callable[[Member], GroupLeadership], refused: Exception
) -> None:
    member = Member()
    member.failures = [refused]

    with pytest.raises(BrokerError) as caught:
        led_by(member).wait(PATIENCE)

    assert str(caught.value) == (
        "Group 'app-leader' decides which process runs application 'app', and this one cannot "
        f"join it: {str(refused).rstrip('.')}. Check that nothing else uses that group, and that "
        "the broker allows the consumer's `session.timeout.ms` of 3000 "
        "(`group.min.session.timeout.ms`)."
    )
    assert caught.value.__cause__ is refused


def test_an_authorization_error_is_raised_unchanged(
    led_by: Callable[[Member], GroupLeadership],
) -> None:
    member = Member()
    member.failures = [AuthorizationError("Not you.")]

    with pytest.raises(AuthorizationError, match=r"^Not you\.$"):
        led_by(member).wait(PATIENCE)


def test_a_retriable_error_is_waited_for(
    led_by: Callable[[Member], GroupLeadership], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.leadership._PAUSE", 0.001)
    member = Member()
    member.failures = [
        BrokerUnavailableError("No answer."),
        CommitFailedError("app-leader"),
        UnknownTopicError("app-leader"),
    ]

    assert led_by(member).wait(PATIENCE)
    assert member.failures == []


@pytest.mark.parametrize("failure", [BrokerError("Refused."), RuntimeError("Closed")])
def test_a_leader_continues_after_any_failure(
    led_by: Callable[[Member], GroupLeadership],
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
) -> None:
    monkeypatch.setattr("headrace.runtime.leadership._PAUSE", 0.001)
    member = Member()
    leadership = led_by(member)
    assert leadership.wait(PATIENCE)

    member.failures = [failure]
    await_that(lambda: not member.failures, "a poll that fails")
    member.polled.clear()

    assert member.polled.wait(PATIENCE)
    assert leadership.wait(0)
    assert not leadership.is_lost()


@pytest.fixture
def before(tmp_path: Path) -> DirectoryLock:
    """The lock of the process that has led before, and did not give it back."""
    lock = embedded_home(tmp_path).lock(log="log")
    lock.acquire()
    return lock


def test_a_leader_takes_the_lock_once_it_is_free(
    before: DirectoryLock, led_by: Callable[[Member], GroupLeadership], tmp_path: Path
) -> None:
    member = Member()
    leadership = led_by(member)
    assert leadership.wait(PATIENCE)

    before.release()
    for _ in range(3):  # a poll may have ended before it was released
        member.polled.clear()
        assert member.polled.wait(PATIENCE)

    with pytest.raises(CheckpointInUseError):
        embedded_home(tmp_path).lock().acquire()


def test_a_replaced_leader_does_not_take_the_lock(
    before: DirectoryLock, led_by: Callable[[Member], GroupLeadership], tmp_path: Path
) -> None:
    member = Member()
    leadership = led_by(member)
    assert leadership.wait(PATIENCE)

    member.is_put_out = True  # by one that has led since: what it committed is not ours
    await_that(leadership.is_lost, "the leadership to be lost")
    before.release()

    with embedded_home(tmp_path).lock():
        pass


def leader_epochs(folder: Path, *metadata: str) -> None:
    """Leave markers of an application, one for each task."""
    log = open_log(StreamsConfig(application_id="app", state_dir=folder))
    log.create_topic("app-markers", partitions=len(metadata))
    markers = {
        TopicPartition("app-markers", task): OffsetAndMetadata(1, text)
        for task, text in enumerate(metadata)
    }
    log.commit_offsets("app-markers", markers)
    log.close()


def test_the_first_generation_is_higher_than_those_of_all_markers(
    led_by: Callable[[Member], GroupLeadership], tmp_path: Path
) -> None:
    ahead = int(time.time()) + 1_000_000
    markers = [Marker("query", "digest", each) for each in (5, ahead, 7)]
    leader_epochs(tmp_path, *(msgspec.json.encode(each).decode() for each in markers))

    leadership = led_by(Member())

    assert leadership.wait(PATIENCE)
    assert leadership.leader_epoch == ahead + 1


def test_a_foreign_offset_keeps_no_process_from_leading(
    led_by: Callable[[Member], GroupLeadership], tmp_path: Path
) -> None:
    leader_epochs(tmp_path, "not ours")
    before = int(time.time())

    leadership = led_by(Member())

    assert leadership.wait(PATIENCE)
    assert before <= leadership.leader_epoch <= time.time()
