"""The group of an application's instances: how one joins it, and sees who is there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from headrace.brokers.log import TopicPartition
from headrace.brokers.sessions import Broker, ConsumerSession, RebalanceListener
from headrace.errors import BrokerError, QueryError, StreamsError, UnknownTopicError

_LOOK_SECONDS = 1.0
_FIRST_LOOK_SECONDS = 0.1
"""How often an instance looks before the group has it."""
_SESSION_MS = 10_000
_BEAT_MS = 3_000
_TAKEN_SECONDS = 15.0
"""After this time a member that has the same name and was there first is alive: it would have been
removed if it was killed."""
_POLL_MS = 100
_CLOSE_SECONDS = 15.0

_log = logging.getLogger("headrace")


class Membership:
    """Keeps an instance in the group, and reports the names of all members every second.

    The assignments of the group mean nothing.

    Args:
        open_broker: Opens the log.
        group: The name of the group.
        topic: The topic of snapshot records, to which members subscribe.
        name: ``application.server`` of this instance.
        on_members: Called with the names.
    """

    def __init__(
        self,
        open_broker: Callable[[], Broker],
        group: str,
        topic: str,
        name: str,
        on_members: Callable[[frozenset[str]], None],
    ) -> None:
        self._open_broker = open_broker
        self._group = group
        self._topic = topic
        self._name = name
        self._on_members = on_members
        self._closing = threading.Event()
        self._earlier: set[str] = set()
        """Members of the same name that were there before this one."""
        self._joined_at = 0.0
        self.failure: QueryError | None = None
        """Why this instance cannot be a member; None: it can."""
        self._thread = threading.Thread(target=self._run, name=f"member-{name}", daemon=True)

    def start(self) -> None:
        """Join in the background."""
        self._thread.start()

    def close(self) -> None:
        """Leave the group."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        is_away = False
        while not self._closing.is_set() and self.failure is None:
            try:
                self._follow()
            except StreamsError as error:
                level = logging.DEBUG if is_away else logging.WARNING
                _log.log(level, "Instance %s is not in its group: %s", self._name, error)
                is_away = True
                self._closing.wait(_LOOK_SECONDS)

    def _follow(self) -> None:
        """Be a member until the instance is closed, or the log fails."""
        broker = self._open_broker()
        session: ConsumerSession | None = None
        try:
            self._await_topic(broker)
            if self._closing.is_set():
                return
            described = broker.describe_group(self._group)
            self._earlier = {each.member_id for each in described if each.client_id == self._name}
            session = self._join(broker)
            while not self._closing.is_set() and self.failure is None:
                is_member = self._look(broker)
                pause = _LOOK_SECONDS if is_member else _FIRST_LOOK_SECONDS
                deadline = time.monotonic() + pause
                while not self._closing.is_set() and time.monotonic() < deadline:
                    session.poll(_POLL_MS, 1)
        finally:
            for close in (session.close if session else None, broker.close):
                with suppress(StreamsError):
                    if close is not None:
                        close()

    def _await_topic(self, broker: Broker) -> None:
        """Wait for the topic: a client that subscribes before sees it minutes later."""
        while not self._closing.is_set():
            try:
                broker.partition_count(self._topic)
            except UnknownTopicError:
                self._closing.wait(_LOOK_SECONDS)
            else:
                return

    def _join(self, broker: Broker) -> ConsumerSession:
        session = broker.open_consumer(
            self._group,
            {
                "client.id": self._name,
                "group.protocol": "classic",
                "session.timeout.ms": str(_SESSION_MS),
                "heartbeat.interval.ms": str(_BEAT_MS),
                "auto.offset.reset": "latest",
                # Not the user's: two processes with one id would fence each other.
                "group.instance.id": "",
            },
        )

        def assigned(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            # The records are read elsewhere.
            return broker.end_offsets(partitions)

        def nothing(_: list[TopicPartition]) -> None:
            pass

        session.subscribe([self._topic], RebalanceListener(assigned, nothing, nothing))
        self._joined_at = time.monotonic()
        return session

    def _look(self, broker: Broker) -> bool:
        """Report the members; return whether this instance is one."""
        try:
            members = broker.describe_group(self._group)
        except BrokerError as error:  # the members of before stay
            _log.debug("Group %s was not described: %s", self._group, error)
            return True
        self._earlier &= {each.member_id for each in members}
        if self._earlier and time.monotonic() - self._joined_at > _TAKEN_SECONDS:
            self.failure = QueryError(
                f"Another instance of group {self._group!r} has the name {self._name!r}. "
                "Give each instance its own `application.server`."
            )
            return True
        names = frozenset(each.client_id for each in members)
        self._on_members(names)
        return self._name in names
