"""Feeds an applier from the topics of an application, and carries out what it decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import cast

from headrace.brokers.log import RecordColumns, TopicPartition
from headrace.brokers.sessions import Broker, PartitionNews
from headrace.errors import BrokerError, QueryError, UnknownTopicError
from headrace.queries.copy.actions import (
    Action,
    AskEnds,
    AskTopicIds,
    Change,
    Changes,
    Read,
    ReadSnapshots,
    ShardState,
    Stop,
)
from headrace.queries.copy.applier import Applier
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.database import Database, SortedEntries
from headrace.queries.copy.layout import CopyLayout, Shard
from headrace.queries.copy.local_copy import LocalCopy
from headrace.queries.copy.views import KeptSnapshots
from headrace.runtime.snapshots import SNAPSHOTS_READ, decode_snapshot

_ENDED_MS = 500
"""How often the applier hears again that a partition has ended."""


class CopyReader:
    """An instance's copy that follows the topics of its application.

    Args:
        log: Where the topics are.
        layout: The stores of the instance's program.
        snapshots_topic: The topic of the snapshot records.
        database: The files of the instance.
        now: The time in milliseconds.
        limits: The limits of the applier.
        snapshots: Where readers find the snapshots.
    """

    def __init__(
        self,
        log: Broker,
        layout: CopyLayout,
        snapshots_topic: str,
        database: Database,
        now: int,
        limits: ApplierLimits | None = None,
        snapshots: KeptSnapshots | None = None,
    ) -> None:
        self._log = log
        self._follower = log.open_follower()
        self._topics = [*layout.changelogs(), snapshots_topic]
        self._snapshots = TopicPartition(snapshots_topic, 0)
        self._snapshots_end: int | None = None
        """Where the snapshots topic ended when its reading began; None: it is not read."""
        self._is_snapshots_due = False
        self._readings: dict[TopicPartition, int] = {}
        self._ended: dict[TopicPartition, int] = {}
        """Where partitions have ended of which nothing was read since."""
        self._ended_at = now
        self._now = now
        # Both keep what is left after the log did not answer.
        self._due: deque[Action] = deque()
        self._news: deque[PartitionNews] = deque()
        self.copy = LocalCopy(layout, database, snapshots)
        self.applier = Applier(layout, snapshots_topic, self.copy.saved(), now, limits)

    def step(self, now: int, seconds: float = 0.0) -> None:
        """Read what is new, and carry out what that leads to.

        Args:
            now: The time in milliseconds.
            seconds: How long to wait for something new.

        Raises:
            BrokerError: The log does not answer. The copy stays as it is, and the next step
                continues.
        """
        self._now = now
        self.applier.tick(now)
        self._carry_out()
        if self._is_snapshots_due:
            self._follow_snapshots()
        if not self._news:
            self._news += self._follower.poll(seconds)
        while self._news:
            self._use(*self._news.popleft())
            self._carry_out()
        if now - self._ended_at >= _ENDED_MS:
            self._ended_at = now
            for name, end in self._ended.items():
                self.applier.end_of_partition(name, self._readings[name], end)
            self._carry_out()

    def _use(self, name: TopicPartition, columns: RecordColumns | None, end: int | None) -> None:
        if name == self._snapshots:
            self._use_snapshots(columns, end)
        elif (reading := self._readings.get(name)) is not None:
            if columns is not None:
                self._ended.pop(name, None)
                self.applier.records(name, reading, _changes(columns))
            if end is not None:
                self._ended[name] = end
                self.applier.end_of_partition(name, reading, end)

    def adopt(self, shard: Shard, state: ShardState, entries: SortedEntries) -> None:
        """Take over a shard that begins at nothing, from a copy of the same identity.

        Here the shard is not whole before it has caught up.
        """
        state = state.taken_over(self._now)
        self.copy.adopt(shard, state, entries)
        self.applier.adopt(shard, state)

    def close(self) -> None:
        """Read no longer."""
        self._follower.close()

    def _carry_out(self) -> None:
        self._due += self.applier.take_actions()
        while self._due:
            # A question for ends that fails is lost, and asked again later; the rest stays due.
            self._carry_out_one(self._due.popleft())
            self._due += self.applier.take_actions()

    def _carry_out_one(self, action: Action) -> None:
        match action:
            case Read(reading, partition, offset):
                self._forget(partition)
                self._readings[partition] = reading
                self._follower.follow(partition, offset)
            case Stop(partition):
                self._forget(partition)
                self._follower.leave(partition)
            case ReadSnapshots():
                self._is_snapshots_due = True
            case AskEnds(request, partitions):
                ends = self._log.end_offsets(partitions)
                self.applier.committed_ends(request, ends)
            case AskTopicIds(request):
                try:
                    ids = self._topic_ids()
                except BrokerError:
                    # Nothing is shown before the answer, so it is the first thing to do again.
                    self._due.appendleft(action)
                    raise
                self.applier.topic_ids(request, ids)
            case _:
                self.copy.carry_out(action, self._now)

    def _forget(self, partition: TopicPartition) -> None:
        """Forget what was read of a partition and is not used yet."""
        self._readings.pop(partition, None)
        self._ended.pop(partition, None)
        self._news = deque(news for news in self._news if news.partition != partition)

    def _topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that exist."""
        try:
            return self._log.topic_ids(self._topics)
        except UnknownTopicError:
            existing = {*self._log.list_topics()}
            return self._log.topic_ids(topic for topic in self._topics if topic in existing)

    def _follow_snapshots(self) -> None:
        name = self._snapshots
        end = self._log.end_offsets([name])[name]
        start = max(self._log.beginning_offsets([name])[name], end - SNAPSHOTS_READ)
        self._follower.follow(name, start)
        self._snapshots_end = end
        self._is_snapshots_due = False
        self._use_snapshots(None, start)

    def _use_snapshots(self, columns: RecordColumns | None, end: int | None) -> None:
        values: Iterable[bytes | None] = () if columns is None else columns.values
        for value in values:
            # A new leader deletes the records of earlier ones.
            if value is not None:
                try:
                    self.applier.snapshot(decode_snapshot(value))
                except QueryError as error:
                    self.applier.refuse_snapshot(str(error))
        position = (end or 0) if columns is None else columns.offsets[-1] + 1
        if self._snapshots_end is not None and position >= self._snapshots_end:
            self.applier.end_of_snapshots()


def _changes(columns: RecordColumns) -> Changes:
    offsets, timestamps, keys, values, _ = columns
    if None in keys:  # another program wrote it
        rows = zip(offsets, timestamps, keys, values, strict=True)
        return Changes.of(Change(*row[:2], row[2], row[3]) for row in rows if row[2] is not None)
    return Changes(offsets, timestamps, cast("list[bytes]", keys), values)
