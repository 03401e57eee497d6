"""Feeds an applier from the topics of an application, and carries out what it decides."""

from __future__ import annotations

from collections import deque

from headrace.brokers.log import OffsetRange, RecordColumns, TopicLog, TopicPartition
from headrace.errors import OffsetOutOfRangeError, QueryError, UnknownTopicError
from headrace.queries.copy.actions import (
    Action,
    AskEnds,
    AskTopicIds,
    Change,
    Read,
    ReadSnapshots,
    Stop,
)
from headrace.queries.copy.applier import Applier
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.database import Database
from headrace.queries.copy.layout import CopyLayout
from headrace.queries.copy.local_copy import LocalCopy
from headrace.queries.copy.views import KeptSnapshots
from headrace.runtime.snapshots import SNAPSHOTS_READ, decode_snapshot


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
        log: TopicLog,
        layout: CopyLayout,
        snapshots_topic: str,
        database: Database,
        now: int,
        limits: ApplierLimits | None = None,
        snapshots: KeptSnapshots | None = None,
    ) -> None:
        self._log = log
        self._topics = [*layout.changelogs(), snapshots_topic]
        self._snapshots = TopicPartition(snapshots_topic, 0)
        self._snapshots_position: int | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._readings: dict[TopicPartition, int] = {}
        self._now = now
        self._due: deque[Action] = deque()
        self.copy = LocalCopy(layout, database, snapshots)
        self.applier = Applier(layout, snapshots_topic, self.copy.saved(), now, limits)

    def step(self, now: int) -> None:
        """Read what is new, and carry out what that leads to.

        Snapshot records come first: the changelog records that they need are then there.

        Raises:
            BrokerError: The log does not answer. The copy stays as it is, and the next step
                continues.
        """
        self._now = now
        self.applier.tick(now)
        self._carry_out()
        self._read_snapshots()
        self._carry_out()
        self._read_changelogs()
        self._carry_out()

    def _carry_out(self) -> None:
        self._due += self.applier.take_actions()
        while self._due:
            # A question that fails is lost, and the applier asks again; later actions stay due.
            self._carry_out_one(self._due.popleft())
            self._due += self.applier.take_actions()

    def _carry_out_one(self, action: Action) -> None:
        match action:
            case Read(reading, partition, offset):
                self._readings[partition] = reading
                self._positions[partition] = offset
            case Stop(partition):
                self._positions.pop(partition, None)
            case ReadSnapshots():
                self._snapshots_position = None
            case AskEnds(request, partitions):
                ends = self._log.end_offsets(partitions)
                self.applier.committed_ends(request, ends)
            case AskTopicIds(request):
                self.applier.topic_ids(request, self._topic_ids())
            case _:
                self.copy.carry_out(action, self._now)

    def _topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that exist."""
        try:
            return self._log.topic_ids(self._topics)
        except UnknownTopicError:
            existing = {*self._log.list_topics()}
            return self._log.topic_ids(topic for topic in self._topics if topic in existing)

    def _read_snapshots(self) -> None:
        if not self.applier.knows_topics:
            return
        end = self._log.end_offsets([self._snapshots])[self._snapshots]
        start = self._snapshots_position
        if start is None:
            beginning = self._log.beginning_offsets([self._snapshots])[self._snapshots]
            start = max(beginning, end - SNAPSHOTS_READ)
        for records in self._log.read(self._snapshots, start, end):
            for record in records:
                # A new leader deletes the records of earlier ones.
                if record.value is not None:
                    try:
                        self.applier.snapshot(decode_snapshot(record.value))
                    except QueryError as error:
                        self.applier.refuse_snapshot(str(error))
        self._snapshots_position = max(start, end)
        self.applier.end_of_snapshots()

    def _read_changelogs(self) -> None:
        ends = self._log.end_offsets(self._positions)
        ranges: list[OffsetRange] = [
            (name, start, ends[name]) for name, start in self._positions.items()
        ]
        try:
            for name, columns in self._log.read_ranges(ranges):
                self._positions[name] = columns.offsets[-1] + 1
                self.applier.records(name, self._readings[name], _changes(columns))
        except OffsetOutOfRangeError:
            # The oldest records were deleted meanwhile; the counts of the applier notice.
            for name, beginning in self._log.beginning_offsets(self._positions).items():
                self._positions[name] = max(self._positions[name], beginning)
            return
        for name, _, end in ranges:
            self._positions[name] = max(self._positions[name], end)
            self.applier.end_of_partition(name, self._readings[name], end)


def _changes(columns: RecordColumns) -> list[Change]:
    rows = zip(columns.offsets, columns.timestamps, columns.keys, columns.values, strict=True)
    return [
        Change(offset, timestamp, key, value)
        for offset, timestamp, key, value in rows
        if key is not None
    ]
