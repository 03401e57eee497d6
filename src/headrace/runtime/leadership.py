"""Leadership: one process runs an application, the others are standbys.

Each leader has a number, the leader epoch. It is the committed offset of the group
``<application.id>-leader`` on a topic of one partition that stays empty. A new leader commits the
next number. The processes of an earlier leader read it before they write, and stop.

On Kafka, the group member that owns the partition may commit. If it does not answer, the broker
gives the partition to another process. On the embedded log, the process that holds the lock on the
application's folder may commit.

The offset's metadata names the leader and its folders. If the leader shut down the whole
application, the metadata says so, and the standbys end too.

Run `make nightly PART=standby` and `make nightly PART=model` after a change here.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from headrace.brokers.log import LeadershipKind, OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.opening import open_log
from headrace.brokers.sessions import Broker, RebalanceListener
from headrace.config import StreamsConfig
from headrace.errors import (
    ApplicationShutdownError,
    AuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    CheckpointError,
    CommitFailedError,
    LeadershipLostError,
    StreamsError,
    TopologyError,
    UnknownTopicError,
)
from headrace.home import ApplicationHome, DirectoryLock, work_dir_of
from headrace.runtime.checkpoint.markers import committed_markers, parse_marker
from headrace.runtime.internal_topics import ensure_topic, internal_settings
from headrace.runtime.snapshots import SNAPSHOTS_READ, read_snapshots
from headrace.topology.naming import leader_name, snapshots_name

_log = logging.getLogger("headrace")

_SESSION_MS = 10_000
_LONGEST_BEAT_MS = 3_000
_JOIN_SECONDS = 5.0
_POLL_MS = 500
_PAUSE = 0.1
_LONGEST_PATH = 1_000
"""Longer paths are left out: Kafka stores at most 4 KB with an offset, and there are two paths."""

_RETRIABLE = (BrokerUnavailableError, CommitFailedError, UnknownTopicError)
"""After these a retry may succeed: the broker is away, or the group or its topic is changing."""


class LeaderNote(msgspec.Struct, omit_defaults=True):
    """The metadata of a leader epoch: the process that leads, and where."""

    process: str = "Another process"
    state_dir: str = ""
    folder: str = ""
    """The folder that the leader has locked."""
    shuts_down_all: bool = False
    """Whether the leader has shut the application down, standbys included."""


def committed_leader_epoch(log: TopicLog, application_id: str) -> int:
    """Return the epoch of an application's last leader; 0 before the first."""
    return _last_leader(log, application_id).offset


def check_leadership(log: TopicLog, application_id: str, leader_epoch: int) -> None:
    """Raise `LeadershipLostError` if another process has taken over."""
    if committed_leader_epoch(log, application_id) != leader_epoch:
        raise LeadershipLostError(application_id)


def leader_note(log: TopicLog, application_id: str) -> LeaderNote:
    """Return the note that the last leader of an application committed."""
    return _note_of(_last_leader(log, application_id))


def find_running_leader(log: TopicLog, application_id: str) -> LeaderNote | None:
    """Return the process that runs an application now, or None.

    On Kafka, it returns a killed leader until its session expires.
    """
    note = leader_note(log, application_id)
    if log.leadership() is LeadershipKind.GROUP:
        return note if log.describe_group(leader_name(application_id)) else None
    return note if note.folder and DirectoryLock(Path(note.folder)).is_held() else None


def locks_of(log: TopicLog, home: ApplicationHome) -> list[DirectoryLock]:
    """Return the locks that keep an application from starting on this machine.

    One lock is in the folder of ``home``. On a local log, another one is in the folder of the last
    leader, which may have other settings. A missing folder has no lock.
    """
    folders = {home.work.resolve()}
    if log.is_local and (folder := leader_note(log, home.application_id).folder):
        folders.add(Path(folder).resolve())
    return [DirectoryLock(folder) for folder in sorted(folders) if folder.is_dir()]


@contextmanager
def advising_standbys(log: TopicLog, home: ApplicationHome) -> Iterator[None]:
    """Run the checks of a start in this block.

    If one fails while another process runs the application, the error advises to stand by.

    Raises:
        CheckpointError: A process of this machine runs the application with other folders.
        StreamsError: The error of the block.
    """
    try:
        if log.is_local:
            _check_folder(log, home)
        yield
    except (CheckpointError, TopologyError) as error:
        if not error.remedy or not (leader := find_running_leader(log, home.application_id)):
            raise
        raise type(error)(error.problem, _standby_advice(leader)) from error


def _check_folder(log: TopicLog, home: ApplicationHome) -> None:
    """Check that no process of this machine runs the application with other folders."""
    leader = find_running_leader(log, home.application_id)
    if leader is not None and Path(leader.folder).resolve() != home.work.resolve():
        msg = f"Application {home.application_id!r} runs in {leader.folder!r}."
        raise CheckpointError(msg, _standby_advice(leader))


def _standby_advice(leader: LeaderNote) -> str:
    folders = f"`state.dir`, {leader.state_dir!r}," if leader.state_dir else "`state.dir`"
    work_dir = str(work_dir_of(Path(leader.folder))) if leader.folder else leader.state_dir
    if work_dir != leader.state_dir:
        folders = f"{folders} and its `work.dir`, {work_dir!r},"
    return (
        f"{leader.process} runs it. To stand by for that process, start the same program with its "
        f"{folders} or stop that process first."
    )


def _last_leader(log: TopicLog, application_id: str) -> OffsetAndMetadata:
    name = _partition(application_id)
    return log.committed_offsets(name.topic, [name]).get(name, OffsetAndMetadata(0))


def _note_of(last: OffsetAndMetadata) -> LeaderNote:
    try:
        return msgspec.json.decode(last.metadata, type=LeaderNote)
    except msgspec.MsgspecError:  # another program may have committed it
        return LeaderNote()


def _partition(application_id: str) -> TopicPartition:
    return TopicPartition(leader_name(application_id), 0)


class Leadership(Protocol):
    """The right of this process to run an application."""

    leader_epoch: int
    """The number of this leader; 0 before it leads."""

    @property
    def start_timeout(self) -> float | None:
        """The seconds to wait for leadership before this process stands by.

        None if another process of this machine holds the lock; the property tries to take it.
        """
        ...

    def wait(self, seconds: float, /) -> bool:
        """Wait until this process leads; return whether it does."""
        ...

    def is_lost(self) -> bool:
        """Return whether this process led, and another one leads now."""
        ...

    def leader(self) -> str:
        """Return the name of the last leader, for messages."""
        ...

    def release(self, *, whole_application: bool = False) -> None:
        """Release the leadership. With ``whole_application``, a leader also ends the standbys."""


def open_leadership(config: StreamsConfig, home: ApplicationHome) -> Leadership:
    """Apply for the leadership of an application.

    Raises `CheckpointInUseError` if a reset has locked its folder, or a process that runs the
    application on another embedded log.
    """
    broker = open_log(config)
    # All embedded logs have the same cluster id, and so the same folder: the lock names the file.
    log = str(Path(broker.address).resolve()) if broker.is_local else home.cluster_id
    lock = home.lock(log=log)
    try:
        lock.try_acquire()
        if broker.leadership() is LeadershipKind.GROUP:
            return GroupLeadership(config, home, broker, lock)
        return LockLeadership(config, home, broker, lock)
    except BaseException:
        lock.release()
        broker.close()
        raise


_Commit = Callable[[dict[TopicPartition, OffsetAndMetadata]], None]


class _LeaderEpochs:
    """Reads and commits leader epochs, for both kinds of leadership."""

    def __init__(
        self, config: StreamsConfig, home: ApplicationHome, broker: Broker, lock: DirectoryLock
    ) -> None:
        self._settings = internal_settings(config)
        self._home = home
        self._application_id = home.application_id
        self._partition = _partition(home.application_id)
        self._broker = broker
        self._lock = lock
        self._leader_before = self._last()
        self.leader_epoch = 0

    def leader(self) -> str:
        return _note_of(self._last()).process

    def _last(self) -> OffsetAndMetadata:
        return _last_leader(self._broker, self._application_id)

    def _become_leader(self, commit: _Commit) -> None:
        last = self._last()
        note = _note_of(last)
        if note.shuts_down_all and last != self._leader_before:
            raise ApplicationShutdownError(self._application_id, leader=note.process)
        leader_epoch = last.offset + 1 if last.offset else self._first_epoch()
        self._commit_epoch(commit, leader_epoch)
        self.leader_epoch = leader_epoch

    def _end_whole_application(self, commit: _Commit) -> None:
        if not self.leader_epoch:
            return
        try:
            self._commit_epoch(commit, self.leader_epoch, shuts_down_all=True)
        except Exception as error:  # the release must continue, or no other process can lead
            _log.warning(
                "Could not shut down the standby processes of application %r; one of them will "
                "take over: %s",
                self._application_id,
                error,
            )

    def _commit_epoch(
        self, commit: _Commit, leader_epoch: int, *, shuts_down_all: bool = False
    ) -> None:
        process = f"Process {os.getpid()} on {platform.node()}"
        state_dir, folder = (
            path if len(path) <= _LONGEST_PATH else ""
            for path in (str(self._home.state_dir.resolve()), str(self._home.work.resolve()))
        )
        note = LeaderNote(process, state_dir, folder, shuts_down_all)
        metadata = msgspec.json.encode(note).decode()
        commit({self._partition: OffsetAndMetadata(leader_epoch, metadata)})

    def _first_epoch(self) -> int:
        """Return the epoch of a first leader: the Unix time in seconds.

        If markers or snapshot records have a later one, it is one more. So it is above all earlier
        epochs, even if the group was deleted or the clock was ahead.
        """
        epochs = [int(time.time())]
        snapshots = snapshots_name(self._application_id)
        records = read_snapshots(self._broker, snapshots, SNAPSHOTS_READ)
        epochs += [record.leader_epoch + 1 for record in records]
        for marker in committed_markers(self._application_id, self._broker).values():
            with suppress(CheckpointError):  # the start of the query reports it
                epochs.append(parse_marker(marker, self._application_id).leader_epoch + 1)
        return max(epochs)


class LockLeadership(_LeaderEpochs):
    """The process that holds the directory lock leads. The system frees the lock when it ends."""

    @property
    def start_timeout(self) -> float | None:
        return 0.0 if self._lock.try_acquire() else None

    def wait(self, seconds: float, /) -> bool:
        deadline = time.monotonic() + seconds
        while not self._lock.try_acquire():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_PAUSE, left))
        if not self.leader_epoch:
            ensure_topic(self._broker, self._partition.topic, 1, self._settings)
            self._become_leader(self._commit)
        return True

    def is_lost(self) -> bool:
        return False  # no other process can take the lock of a living one

    def release(self, *, whole_application: bool = False) -> None:
        if whole_application:
            self._end_whole_application(self._commit)
        self._lock.release()
        self._broker.close()

    def _commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self._broker.commit_offsets(self._partition.topic, offsets)


class GroupLeadership(_LeaderEpochs):
    """The member of a Kafka group that owns its only partition leads.

    A thread stays in the group while the application works. A leader that loses the partition
    continues until another process commits a leader epoch. Perhaps only the broker was away.
    """

    def __init__(
        self, config: StreamsConfig, home: ApplicationHome, broker: Broker, lock: DirectoryLock
    ) -> None:
        super().__init__(config, home, broker, lock)
        settings = config.client_settings("main.consumer")
        self._session_ms = int(settings.get("session.timeout.ms", _SESSION_MS))
        self._owns = False
        self._is_in_doubt = False
        """True from the loss of the partition until it is back and the epoch is read again."""
        self._leads = threading.Event()
        self._lost = threading.Event()
        self._released = threading.Event()
        self._whole_application = False
        self._failed: StreamsError | None = None
        ensure_topic(self._broker, self._partition.topic, 1, self._settings)
        self._session = self._broker.open_consumer(
            self._partition.topic,
            {
                "group.protocol": "classic",
                # Sticky: a process that joins later does not get the leader's partition.
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": str(self._session_ms),
                "heartbeat.interval.ms": str(min(_LONGEST_BEAT_MS, self._session_ms // 3)),
                "auto.offset.reset": "earliest",
                # Not the user's: two processes with one id would fence each other.
                "group.instance.id": "",
            },
        )
        listener = RebalanceListener(self._assigned, self._revoked, self._revoked)
        self._session.subscribe([self._partition.topic], listener)
        self._thread = threading.Thread(
            target=self._follow, name=f"{self._application_id}-leader", daemon=True
        )
        self._thread.start()

    @property
    def start_timeout(self) -> float | None:
        # With the lock, no other process of this machine runs the application. The group may
        # still have a killed one as a member.
        return self._session_ms / 1000 + _JOIN_SECONDS if self._lock.try_acquire() else None

    def wait(self, seconds: float, /) -> bool:
        leads = self._leads.wait(seconds)
        if self._failed is not None:
            raise self._failed
        return leads

    def is_lost(self) -> bool:
        return self._lost.is_set()

    def release(self, *, whole_application: bool = False) -> None:
        self._whole_application = whole_application
        self._released.set()
        self._session.wakeup()
        self._thread.join()
        self._lock.release()
        self._broker.close()

    def _assigned(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._owns = self._owns or self._partition in partitions
        return dict.fromkeys(partitions, 0)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._owns = self._owns and self._partition not in partitions
        self._is_in_doubt = not self._owns

    def _follow(self) -> None:
        while not (self._released.is_set() or self._lost.is_set() or self._failed):
            try:
                self._session.poll(_POLL_MS, 1)
                self._update()
            except Exception as error:  # before this process leads, `wait` raises it
                if not (self.leader_epoch or isinstance(error, _RETRIABLE)):
                    self._failed = self._refusal(error)
                    self._leads.set()
                _log.debug("The leadership of %r: %s", self._application_id, error)
                self._released.wait(_PAUSE)
        if self._whole_application and not self._lost.is_set():
            self._end_whole_application(self._session.commit)
        with suppress(StreamsError):
            self._session.close()

    def _refusal(self, error: Exception) -> StreamsError:
        """Return the error to raise if a retry would repeat it."""
        if isinstance(error, (AuthorizationError, ApplicationShutdownError)):
            return error
        refusal = BrokerError(
            f"Group {self._partition.topic!r} decides which process runs application "
            f"{self._application_id!r}, and this one cannot join it: {str(error).rstrip('.')}. "
            "Check that nothing else uses that group, and that the broker allows the consumer's "
            f"`session.timeout.ms` of {self._session_ms} (`group.min.session.timeout.ms`)."
        )
        refusal.__cause__ = error
        return refusal

    def _update(self) -> None:
        """Become leader if this process owns the partition; a leader in doubt checks its epoch."""
        if not self.leader_epoch:
            if not self._owns:
                return
            # The broker rejects the commit if this process is no longer a member.
            self._become_leader(self._session.commit)
            self._leads.set()
        elif self._is_in_doubt:
            last = committed_leader_epoch(self._broker, self._application_id)
            if last != self.leader_epoch:
                self._lost.set()
                return
            self._is_in_doubt = not self._owns
        # The previous leader may have held the lock until now. The lock keeps a reset out.
        self._lock.try_acquire()
