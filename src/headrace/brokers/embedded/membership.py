"""One member of a group of the embedded log, from its own side."""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from uuid import uuid4

from headrace.brokers.embedded.database import Database
from headrace.brokers.embedded.groups import (
    Group,
    Member,
    load_group,
    save_group,
    topic_counts,
)
from headrace.brokers.embedded.writing import now_ms
from headrace.brokers.log import TopicPartition
from headrace.brokers.sessions import RebalanceListener
from headrace.errors import BrokerError

_log = logging.getLogger(__name__)


class Membership:
    """Keeps a consumer in its group, and gives it the partitions that it may read.

    A thread of its own sends the heartbeats, so that a slow reader stays a member; everything else
    happens in `follow`, on the reader's thread.
    """

    def __init__(
        self,
        database: Database,
        group: str,
        topics: Collection[str] | re.Pattern[str],
        listener: RebalanceListener,
        settings: Mapping[str, str],
    ) -> None:
        client_id = settings.get("client.id") or "consumer"
        strategy = settings.get("partition.assignment.strategy", "range")
        self.id = f"{client_id}-{uuid4()}"
        self.group = group
        self.generation = 0
        """The generation that this member has joined; 0 before it joins."""
        self._database = database
        self._topics = topics
        self._listener = listener
        self._session_ms = int(settings.get("session.timeout.ms", 45_000))
        self._interval_ms = int(settings.get("heartbeat.interval.ms", self._session_ms // 3))
        self._max_poll_ms = int(settings.get("max.poll.interval.ms", 300_000))
        self._member = Member(
            client_id,
            [],
            "sticky" if "sticky" in strategy.lower() else "range",
            self._session_ms,
            self._max_poll_ms,
        )
        self._owned: list[TopicPartition] = []
        self._owns = 0
        """The generation whose partitions are owned."""
        self._next_expiry = 0
        self._followed = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat-{self.id}", daemon=True)

    @property
    def next_look_ms(self) -> int:
        """Return how long an unchanged file may stay unread: until a member is late."""
        return max(1, min(self._interval_ms, self._next_expiry + 1 - now_ms()))

    def follow(self) -> bool:
        """Take one step with the group: join, release partitions, take new ones, remove others.

        Returns whether another step may be due at once.
        """
        self._followed = time.monotonic()
        with self._database.reading() as file:
            group = load_group(file, self.group)
            counts = topic_counts(file)
        self._member.topics = self._subscribed_topics(counts)
        known = group.members.get(self.id)
        if known is None or known.topics != self._member.topics:
            self._release_partitions(
                self._listener.lost if known is None else self._listener.revoked
            )
            self._enter(self._change(lambda state: state.join(self.id, self._member, now_ms())))
            return True
        if group.generation > self.generation:
            self._release_partitions(self._listener.revoked)
            self._enter(self._change(lambda state: state.rejoin(self.id)))
            return True
        if group.assigned == group.generation != self._owns:
            self._owns = group.generation
            self._owned = list(known.assignment)
            self._listener.assigned(list(self._owned))
            return True
        moved = deepcopy(group)
        moved.advance(now_ms(), counts)
        if moved != group:
            self._change(lambda _: None)
            return True
        self._next_expiry = group.next_expiry()
        return False

    def leave(self, *, announced: bool = True) -> None:
        """Release all partitions and leave the group; call the listener if ``announced``."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            if announced:
                self._release_partitions(self._listener.revoked)
        finally:
            if self.generation:
                self._change(lambda state: state.leave(self.id, now_ms()))

    def _enter(self, group: Group) -> None:
        # If others removed this member meanwhile, its next step joins again.
        if member := group.members.get(self.id):
            self.generation = member.joined
        if self._thread.ident is None:
            self._thread.start()

    def _release_partitions(self, notify: Callable[[list[TopicPartition]], None]) -> None:
        owned, self._owned = self._owned, []
        if owned:
            notify(owned)

    def _change(self, change: Callable[[Group], None]) -> Group:
        with self._database.writing() as file:
            return _changed(file, self.group, change)

    def _subscribed_topics(self, counts: Mapping[str, int]) -> list[str]:
        if isinstance(self._topics, re.Pattern):
            return sorted(topic for topic in counts if self._topics.fullmatch(topic))
        return sorted(set(self._topics))

    def _beat(self) -> None:
        while not self._stopped.wait(self._interval_ms / 1000):
            silent_ms = (time.monotonic() - self._followed) * 1000
            try:
                if silent_ms > self._max_poll_ms:
                    _log.warning(
                        "Consumer %s leaves group %s: it has not polled for max.poll.interval.ms.",
                        self.id,
                        self.group,
                    )
                    self._change(lambda state: state.leave(self.id, now_ms()))
                    return
                self._change(self._touch)
            except BrokerError as error:
                _log.warning("Consumer %s could not send a heartbeat: %s", self.id, error)

    def _touch(self, state: Group) -> None:
        if member := state.members.get(self.id):
            member.heartbeat = now_ms()


def _changed(file: sqlite3.Connection, name: str, change: Callable[[Group], None]) -> Group:
    group = load_group(file, name)
    change(group)
    group.advance(now_ms(), topic_counts(file))
    save_group(file, name, group)
    return group
