"""Leadership: one process runs an application, others stand by.

Who leads is a number, the generation. It is the committed offset of the group
``<application.id>-leader`` on a topic of one partition that is never written. Who becomes leader
commits the next one; what still runs for another finds that out, and stops. Who may commit it is
decided by the broker: in Kafka the member that was given the partition, so that a process which
does not answer is put out; on the embedded log the process that holds the lock on the state.

What is committed with the number tells which process that is, and at its end whether it has ended
the application for all: who finds that, and did not find it when it began to wait, ends too.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.opening import embedded_path, open_log
from headrace.brokers.sessions import RebalanceListener
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
    UnknownTopicError,
)
from headrace.home import DirectoryLock
from headrace.runtime.checkpoint.markers import committed_markers, parse_marker
from headrace.runtime.internal_topics import ensure_topic, internal_settings
from headrace.topology.naming import leader_name

_log = logging.getLogger("headrace")

_SESSION_MS = 10_000
_LONGEST_BEAT_MS = 3_000
_JOIN_SECONDS = 5.0
_POLL_MS = 500
_PAUSE = 0.1
_FOR_ALL = " (shut down for all)"

_RETRIABLE = (BrokerUnavailableError, CommitFailedError, UnknownTopicError)
"""Errors that may not come again: the broker is away, or the group or its topic just changes."""


def committed_leader_epoch(log: TopicLog, application_id: str) -> int:
    """Return the generation of the last leader of an application; 0 before the first."""
    return _last_leader(log, application_id).offset


def check_leadership(log: TopicLog, application_id: str, leader_epoch: int) -> None:
    """Refuse to go on for a leader that is not the last one.

    Raises:
        LeadershipLostError: Another process has taken over.
    """
    if committed_leader_epoch(log, application_id) != leader_epoch:
        raise LeadershipLostError(application_id)


def _last_leader(log: TopicLog, application_id: str) -> OffsetAndMetadata:
    name = _partition(application_id)
    return log.committed_offsets(name.topic, [name]).get(name, OffsetAndMetadata(0))


def _process_of(last: OffsetAndMetadata) -> str:
    return last.metadata.removesuffix(_FOR_ALL) or "Another process"


def _partition(application_id: str) -> TopicPartition:
    return TopicPartition(leader_name(application_id), 0)


class Leadership(Protocol):
    """The right of this process to run an application."""

    leader_epoch: int
    """The number of this leader; 0 before it leads."""

    @property
    def patience(self) -> float | None:
        """How many seconds it may take to lead; None if another process is known to."""
        ...

    def wait(self, seconds: float, /) -> bool:
        """Wait until this process leads, and return whether it does."""
        ...

    def is_lost(self) -> bool:
        """Return whether this process led, and another one does now."""
        ...

    def leader(self) -> str:
        """Say which process led last."""
        ...

    def release(self, *, whole_application: bool = False) -> None:
        """Let others lead; or, if this process leads, let those that stand by now end."""


def open_leadership(config: StreamsConfig, directory: Path) -> Leadership:
    """Begin to ask for the leadership of an application.

    Args:
        config: Of the application.
        directory: Where its state is.

    Raises:
        CheckpointInUseError: Something else uses the state.
    """
    on_kafka = config.bootstrap_servers is not None
    where = config.bootstrap_servers or str(embedded_path(config).absolute())
    lock = DirectoryLock(directory, log=where)
    lock.try_acquire()
    try:
        return (GroupLeadership if on_kafka else FileLeadership)(config, lock)
    except BaseException:
        lock.release()
        raise


_Commit = Callable[[dict[TopicPartition, OffsetAndMetadata]], None]


class _Generations:
    """The generations of one application."""

    def __init__(self, config: StreamsConfig) -> None:
        self._settings = internal_settings(config)
        self._application_id = config.require_application_id()
        self._partition = _partition(self._application_id)
        self._broker = open_log(config)
        self._found = self._last()
        self.leader_epoch = 0

    def leader(self) -> str:
        return _process_of(self._last())

    def _last(self) -> OffsetAndMetadata:
        return _last_leader(self._broker, self._application_id)

    def _take(self, commit: _Commit) -> None:
        last = self._last()
        if last.metadata.endswith(_FOR_ALL) and last != self._found:
            raise ApplicationShutdownError(self._application_id, leader=_process_of(last))
        leader_epoch = last.offset + 1 if last.offset else self._first()
        self._say(commit, leader_epoch)
        self.leader_epoch = leader_epoch

    def _end_whole_application(self, commit: _Commit) -> None:
        if not self.leader_epoch:
            return
        try:
            self._say(commit, self.leader_epoch, _FOR_ALL)
        except Exception as error:  # whatever it is, others must be let lead
            _log.warning(
                "Processes that stand by for application %r take over, although it was to end for "
                "all of them: %s",
                self._application_id,
                error,
            )

    def _say(self, commit: _Commit, leader_epoch: int, more: str = "") -> None:
        process = f"Process {os.getpid()} on {platform.node()}{more}"
        commit({self._partition: OffsetAndMetadata(leader_epoch, process)})

    def _first(self) -> int:
        """Return a generation to begin with: no number comes again when the group was deleted.

        It is the time of day, unless markers were written when the clock went ahead of it.
        """
        found = [int(time.time())]
        for marker in committed_markers(self._application_id, self._broker).values():
            with suppress(CheckpointError):  # told by who starts the query
                found.append(parse_marker(marker, self._application_id).leader_epoch + 1)
        return max(found)


class FileLeadership(_Generations):
    """The leadership of who holds the lock: the system frees it when that process dies."""

    def __init__(self, config: StreamsConfig, lock: DirectoryLock) -> None:
        super().__init__(config)
        self._lock = lock

    @property
    def patience(self) -> float | None:
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
            self._take(self._commit)
        return True

    def is_lost(self) -> bool:
        return False  # the lock ends with the process

    def release(self, *, whole_application: bool = False) -> None:
        if whole_application:
            self._end_whole_application(self._commit)
        self._lock.release()
        self._broker.close()

    def _commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self._broker.commit_offsets(self._partition.topic, offsets)


class GroupLeadership(_Generations):
    """The leadership of the member of a Kafka group that was given its one partition.

    A thread stays in the group while the application works. Who loses the partition leads until
    another process has committed a generation: it may be the broker that was away.
    """

    def __init__(self, config: StreamsConfig, lock: DirectoryLock) -> None:
        super().__init__(config)
        self._lock = lock
        told = config.client_settings("main.consumer")
        self._session_ms = int(told.get("session.timeout.ms", _SESSION_MS))
        self._owns = False
        self._is_in_doubt = False
        """Whether the partition was lost, and nobody has looked who leads since it came back."""
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
                # Who comes later does not get what the leader has.
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": str(self._session_ms),
                "heartbeat.interval.ms": str(min(_LONGEST_BEAT_MS, self._session_ms // 3)),
                "auto.offset.reset": "earliest",
                # Two that have the same name here would put each other out.
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
    def patience(self) -> float | None:
        # With the lock in hand nobody else is alive here, but the group may not know that yet.
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
                self._look()
            except Exception as error:  # whatever it is, somebody waits to hear of it
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
        """Return what to say of an error that would come again."""
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

    def _look(self) -> None:
        if not self.leader_epoch:
            if not self._owns:
                return
            # Refused if the group went on without us meanwhile.
            self._take(self._session.commit)
            self._leads.set()
        elif self._is_in_doubt:
            last = committed_leader_epoch(self._broker, self._application_id)
            if last != self.leader_epoch:
                self._lost.set()
                return
            self._is_in_doubt = not self._owns
        # Who led before may have held it until now. It keeps `headrace reset` out.
        self._lock.try_acquire()
