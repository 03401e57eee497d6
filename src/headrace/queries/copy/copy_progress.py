"""Brings the shards of an instance to a snapshot, and shows them at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.actions import (
    Action,
    AskEnds,
    AskTopicIds,
    CopyState,
    Read,
    ShardState,
    ShardWrite,
    Show,
    Write,
)
from headrace.queries.copy.layout import CopyLayout, Shard
from headrace.queries.copy.shard_progress import PartitionProgress, Phase, ShardProgress
from headrace.queries.copy.snapshot_log import SnapshotLog
from headrace.runtime.snapshots import SnapshotRecord

LEFT_BEHIND_MS = 2_000
"""After this time a snapshot is shown without the shards whose records are missing."""


@dataclass(frozen=True)
class ApplierLimits:
    """The limits of an applier, from the settings of topics and of the instance."""

    delete_retention_ms: int = 86_400_000
    """``delete.retention.ms`` of the changelogs: for how long they keep deletions."""
    waiting_bytes: int = 64 << 20
    """How much may wait for a snapshot record."""
    part_bytes: int = 4 << 20
    """How much a shard that catches up writes at once."""
    marker_offsets: int = 1
    """How many offsets the end of a transaction takes: 1 on Kafka, 0 on the embedded log."""
    has_copies: bool = False
    """Whether changelogs may have a record twice, as with ``at_least_once``: it counts once."""


@dataclass
class Outbox:
    """Actions that are due, and the numbers of questions."""

    actions: list[Action] = field(default_factory=list)
    requests: int = 0

    def read(self, partition: TopicPartition, offset: int) -> int:
        """Read a partition, and return the number of the reading."""
        self.requests += 1
        self.actions.append(Read(self.requests, partition, offset))
        return self.requests

    def ask_ends(self, partitions: Iterable[TopicPartition]) -> int:
        """Ask for committed ends, and return the number of the question."""
        self.requests += 1
        self.actions.append(AskEnds(self.requests, tuple(partitions)))
        return self.requests

    def ask_topic_ids(self) -> int:
        """Ask for topic ids, and return the number of the question."""
        self.requests += 1
        self.actions.append(AskTopicIds(self.requests))
        return self.requests


class CopyProgress:
    """The shards of an instance in one history.

    Args:
        layout: The stores.
        log: The snapshot records.
        outbox: Takes the actions.
        limits: Its limits.
        now: The time in milliseconds.
    """

    def __init__(
        self, layout: CopyLayout, log: SnapshotLog, outbox: Outbox, limits: ApplierLimits, now: int
    ) -> None:
        self._layout = layout
        self._log = log
        self._outbox = outbox
        self._limits = limits
        self.now = now
        self.topic_ids: dict[str, str] = {}
        self.head: SnapshotRecord | None = None
        """The snapshot that is shown, or is to be."""
        self.shards: dict[Shard, ShardProgress] = {}
        self._questions: dict[int, list[tuple[PartitionProgress, int]]] = {}
        """By question for topic ids the positions that its answer confirms."""
        self._asked = self._confirmed = 0
        """The newest question for topic ids, and the newest that was answered."""
        self.is_unconfirmed = False
        """Whether a shard waits for topic ids."""

    def add_shard(self, shard: Shard, state: ShardState | None) -> None:
        """Read a shard, from where the database has it or from the beginning."""
        if state is None:
            state = ShardState(None, {}, self.now)
            # Now, so that a restart knows when the shard began, and with which topics.
            self._outbox.actions.append(Write([ShardWrite(shard, state)], self.state()))
        progress = ShardProgress(
            shard, self._layout.partitions(shard), state, has_copies=self._limits.has_copies
        )
        self.shards[shard] = progress
        self._read(progress)
        if self.head is not None:
            self.show_saved([progress])

    def _read(self, progress: ShardProgress) -> None:
        for name, each in progress.partitions.items():
            each.reading = self._outbox.read(name, each.written)

    def reading_of(self, partition: TopicPartition, reading: int) -> ShardProgress | None:
        """Return the shard of a partition; None: a newer read has replaced this one."""
        for progress in self.shards.values():
            each = progress.partitions.get(partition)
            if each is not None:
                return progress if each.reading == reading else None
        return None

    def show_saved(self, shards: Iterable[ShardProgress]) -> None:
        """Show the shards that the database has at the head; the others catch up."""
        assert self.head is not None, "a record was read"
        shown = False
        for progress in shards:
            if progress.base == self.head.snapshot:
                progress.shown, shown = progress.base, True
            elif progress.phase is Phase.WHOLE:
                self._begin(progress)
        if shown:
            self._show()

    def advance(self) -> None:
        """Do everything that the records read so far allow."""
        if self.head is None:
            return
        self.is_unconfirmed = False
        while True:
            for progress in [*self.shards.values()]:
                self._catch_up(progress)
            if not self._join() and not self._apply_next():
                return

    def ask_topic_ids(self) -> int:
        """Ask for topic ids, and return the number of the question."""
        self._asked = request = self._outbox.ask_topic_ids()
        self._questions[request] = question = []
        for progress in self.shards.values():
            for each in progress.partitions.values():
                each.asked = each.position
                question.append((each, each.position))
        return request

    def confirm(self, request: int) -> None:
        """Set that the topics were the same when a question was asked."""
        for each, position in self._questions.get(request, ()):
            each.confirmed = max(each.confirmed, position)
        self._confirmed = request
        self._questions = {key: self._questions[key] for key in self._questions if key > request}

    def _is_confirmed(self, progress: ShardProgress, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether all that is to be shown is of the copy's topics; ask if it is not known.

        Readers of a topic that is deleted and created again read on at their offset, and its
        committed ends are lower: a part of a write that a crash has interrupted is behind them.
        """
        if progress.is_confirmed(ends) and self._confirmed > progress.answered_at:
            return True
        self.is_unconfirmed = True
        if not (progress.is_asked(ends) and self._asked > progress.answered_at):
            self.ask_topic_ids()
        return False

    def limit_waiting(self) -> None:
        """Write the largest shard under its mark while too much waits for a record."""
        while sum(each.waiting_bytes for each in self.shards.values()) > self._limits.waiting_bytes:
            progress = max(self.shards.values(), key=lambda each: each.waiting_bytes)
            if progress.phase is Phase.WHOLE:
                self._await_join(progress)
            self._write_part(progress)

    def ask_ends(self, progress: ShardProgress) -> None:
        """Ask for the committed ends of a shard."""
        progress.phase = Phase.ASKING
        progress.request = self._outbox.ask_ends(progress.partitions)
        progress.asked_at = self.now

    def _begin(self, progress: ShardProgress) -> None:
        """Catch up from (a) on, with everything that was read."""
        newest = self._log.newest
        assert newest is not None, "a record was read"
        progress.phase = Phase.READING
        progress.move_base(newest)

    def _catch_up(self, progress: ShardProgress) -> None:
        if progress.phase is Phase.WHOLE:
            return
        if progress.base is None:
            self._begin(progress)
        if progress.phase is Phase.JOINING:
            self._follow(progress)
        elif progress.waiting_bytes >= self._limits.part_bytes:
            self._write_part(progress)
        if progress.phase is Phase.READING and progress.has_reached(progress.base_ends):
            progress.short_since = None
            newest = self._log.newest
            if newest is not None and progress.has_reached(progress.ends(newest)):
                progress.move_base(newest)
            self.ask_ends(progress)
        if progress.phase is Phase.REACHING and progress.has_reached(progress.asked_ends):
            self._write_part(progress)
            self._await_join(progress)

    def _await_join(self, progress: ShardProgress) -> None:
        """Wait for a snapshot that has everything that the shard has written since its base."""
        progress.phase = Phase.JOINING

    def _write_part(self, progress: ShardProgress) -> None:
        part = progress.write_part()
        if part is not None:
            self._outbox.actions.append(Write([part]))

    def _follow(self, progress: ShardProgress) -> None:
        """Count the snapshots from the base of a shard to the head."""
        assert self.head is not None, "a record was read"
        while progress.base is not None and progress.base < self.head.snapshot:
            record = self._log.after(progress.base)
            assert record is not None, "the head is one"
            if not progress.has_reached(progress.ends(record)):
                return
            if not progress.follows(record):
                self._begin(progress)
                return
            progress.move_base(record)

    def _join(self) -> bool:
        """Show the shards that are whole at the head by now; return whether there are any."""
        assert self.head is not None, "a record was read"
        parts = []
        for progress in self.shards.values():
            if (
                progress.phase is Phase.JOINING
                and progress.base == self.head.snapshot
                and progress.holds_only(progress.base_ends)
                and self._sees_deletions(progress)
                and self._is_confirmed(progress, progress.base_ends)
            ):
                if self.now - progress.fresh_at < self._limits.delete_retention_ms // 2:
                    parts.append(progress.write_whole(self.head, self.now))
                else:
                    self._begin_at_nothing(progress)
        if parts:
            self._write_snapshot(parts)
        return bool(parts)

    def _sees_deletions(self, progress: ShardProgress) -> bool:
        """Return whether no deletion behind the head can be gone from a changelog.

        It would leave no trace: neither a record behind the head, nor those that it deleted.
        """
        assert self.head is not None, "a record was read"
        age = self.now - self._log.written_at(self.head)
        return age < self._limits.delete_retention_ms // 2 or progress.ended_at(
            progress.base_ends, self._limits.marker_offsets
        )

    def _begin_at_nothing(self, progress: ShardProgress) -> None:
        """Read a shard again: a deletion that it has not seen may be gone from a changelog."""
        progress.restart(self.now)
        state = ShardState(None, {}, self.now)
        self._outbox.actions.append(Write([ShardWrite(progress.shard, state, wipes=True)]))
        self._read(progress)

    def _apply_next(self) -> bool:
        """Show the snapshot behind the head if the whole shards have it; return whether."""
        assert self.head is not None, "a record was read"
        record = self._log.after(self.head.snapshot)
        if record is None:
            return False
        is_waiting = False
        ready = []
        for progress in self.shards.values():
            if progress.phase is not Phase.WHOLE:
                continue
            ends = progress.ends(record)
            has_reached = progress.has_reached(ends)
            if not has_reached and self.now - self._log.arrival(record) < LEFT_BEHIND_MS:
                is_waiting = True
            elif not (has_reached and progress.follows(record)):
                self._begin(progress)
            elif self._is_confirmed(progress, ends):
                ready.append(progress)
            else:
                is_waiting = True
        if is_waiting:
            return False
        self.head = record
        parts = [progress.write_whole(record, self.now) for progress in ready]
        if parts:
            self._write_snapshot(parts)
        return True

    def _write_snapshot(self, parts: list[ShardWrite]) -> None:
        self._outbox.actions.append(Write(parts, self.state()))
        self._show()

    def state(self) -> CopyState:
        """Return what the database should remember of the copy as a whole."""
        return CopyState(self._layout.digest, self.topic_ids, self.head)

    def _show(self) -> None:
        assert self.head is not None, "a record was read"
        shown = {
            progress.shard: progress.previous
            for progress in self.shards.values()
            if progress.phase is Phase.WHOLE and progress.shown == self.head.snapshot
        }
        self._outbox.actions.append(Show(self.head, shown))
