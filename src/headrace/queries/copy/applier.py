"""The applier: decides what an instance reads, writes and shows. It has no I/O and no clock.

Its host hands events in (records, ends, answers, the time) and carries out the actions that come
out, in order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.actions import (
    Action,
    Changes,
    CopyIdentity,
    ReadSnapshots,
    SavedCopy,
    ShardState,
    ShardWrite,
    Stop,
    ThrowAway,
    Write,
)
from headrace.queries.copy.copy_progress import LEFT_BEHIND_MS, ApplierLimits, CopyProgress, Outbox
from headrace.queries.copy.layout import CopyLayout, Shard
from headrace.queries.copy.shard_progress import Phase
from headrace.queries.copy.snapshot_log import SnapshotLog
from headrace.runtime.snapshots import SnapshotRecord, digest_topic_ids

MOST_BEHIND = 3
"""A ready shard is at most this many snapshots behind, or for at most `LEFT_BEHIND_MS`."""
LOST_MS = 10_000
"""After this time records below the ends of a snapshot count as lost."""
TOPIC_IDS_MS = 30_000
"""How often topic ids are compared."""
ANSWER_MS = 5_000
"""After this time without an answer a question is asked again."""
FRESHNESS_MS = 60_000
"""How old the saved time of a whole shard may become."""


class Applier:
    """The state of an instance's copy.

    Args:
        layout: The stores of the instance's program.
        snapshots_topic: The topic of the snapshot records.
        saved: The content of the database of the instance.
        now: The time in milliseconds.
        limits: Its limits.
    """

    def __init__(
        self,
        layout: CopyLayout,
        snapshots_topic: str,
        saved: SavedCopy,
        now: int,
        limits: ApplierLimits | None = None,
    ) -> None:
        self._layout = layout
        self._changelogs = layout.changelogs()
        self._snapshots_topic = snapshots_topic
        self._limits = limits or ApplierLimits()
        self._outbox = Outbox()
        self._kept: set[Shard] = set()
        self._ids_answered = 0
        self._start(saved, now)
        if saved.shards and (saved.copy is None or saved.copy.layout != layout.digest):
            self._throw_away()

    def _start(self, saved: SavedCopy, now: int) -> None:
        self._saved = saved.copy
        self._saved_shards = dict(saved.shards)
        first = saved.copy.record if saved.copy else None
        self._history = first.history if first else None
        self._log = SnapshotLog(self._layout.digest, first, now)
        self._copy = CopyProgress(self._layout, self._log, self._outbox, self._limits, now)
        self._topic_ids: Mapping[str, str] | None = None
        self._ask_topic_ids()

    def take_actions(self) -> list[Action]:
        """Return the actions that are due, in order."""
        actions, self._outbox.actions = self._outbox.actions, []
        return actions

    @property
    def newest(self) -> SnapshotRecord | None:
        """Return the newest snapshot record that was read."""
        return self._log.newest

    @property
    def problem(self) -> str | None:
        """Return why no snapshot can be shown; None: nothing is known to be wrong."""
        return self._log.problem

    @property
    def kept(self) -> frozenset[Shard]:
        """Return the shards that the instance keeps."""
        return frozenset(self._kept)

    @property
    def identity(self) -> CopyIdentity | None:
        """Return what the copy belongs to; None: it is not known yet."""
        newest, ids = self._log.newest, self._topic_ids
        if newest is None or ids is None:
            return None
        changelogs = {each: ids[each] for each in self._changelogs}
        return CopyIdentity(self._layout.digest, newest.history, changelogs)

    def begins_at_nothing(self, shard: Shard) -> bool:
        """Return whether the database has nothing of a shard that is not read yet."""
        state = self._saved_shards.get(shard)
        has_some = state is not None and (state.snapshot is not None or bool(state.offsets))
        return shard not in self._copy.shards and not has_some

    def adopt(self, shard: Shard, state: ShardState) -> None:
        """Use what the database has of a shard by now: a shard of the same identity, not whole."""
        self._saved_shards[shard] = state
        self._outbox.actions.append(Write([], self._copy.state()))

    def problem_of(self, shard: Shard) -> str | None:
        """Return why a shard does not join; None: nothing is known to be wrong."""
        progress = self._copy.shards.get(shard)
        if progress is None:
            return None
        name = f"Shard {shard.partition} of {shard.group!r}"
        if self.has_lost_records(shard):
            return f"{name} has lost records of a changelog. Reset the application."
        if progress.is_too_slow:
            return (
                f"{name} takes longer to restore than its changelogs keep deletions. "
                "Raise their `delete.retention.ms`."
            )
        return None

    def has_lost_records(self, shard: Shard) -> bool:
        """Return whether a changelog of a shard has ended below the ends of a snapshot for long."""
        progress = self._copy.shards.get(shard)
        since = None if progress is None else progress.short_since
        return since is not None and self._copy.now - since >= LOST_MS

    def newest_shown(self, shard: Shard) -> int | None:
        """Return the newest snapshot at which readers see a shard; None: they see none."""
        progress = self._copy.shards.get(shard)
        return None if progress is None else progress.shown

    def is_shard_ready(self, shard: Shard) -> bool:
        """Return whether a shard may answer: it is shown, and not far behind."""
        progress = self._copy.shards.get(shard)
        if progress is None or progress.shown is None:
            return False
        newer = self._log.arrivals_after(progress.shown)
        return len(newer) <= MOST_BEHIND or self._copy.now - newer[MOST_BEHIND] <= LEFT_BEHIND_MS

    def is_ready(self) -> bool:
        """Return whether every shard that the instance keeps is ready."""
        is_known = self.newest is not None and self.problem is None
        return is_known and all(map(self.is_shard_ready, self._kept))

    def keep(self, shards: Collection[Shard]) -> None:
        """Set the shards that the instance keeps; it drops all others."""
        self._kept = set(shards)
        for shard in sorted({*self._copy.shards, *self._saved_shards} - self._kept):
            progress = self._copy.shards.pop(shard, None)
            for name in progress.partitions if progress else ():
                self._outbox.actions.append(Stop(name))
            self._saved_shards.pop(shard, None)
            self._outbox.actions.append(Write([ShardWrite(shard, None, wipes=True)]))
        if self._topic_ids is not None:
            self._read_kept()

    def tick(self, now: int) -> None:
        """Set the time, in milliseconds."""
        self._copy.now = now
        progresses = self._copy.shards.values()
        is_urgent = self._copy.is_unconfirmed or self._topic_ids is None
        pause = ANSWER_MS if is_urgent else TOPIC_IDS_MS
        if now - self._ids_asked_at >= pause:
            self._ask_topic_ids()
        for progress in progresses:
            if progress.phase is Phase.ASKING and now - progress.asked_at >= ANSWER_MS:
                self._copy.ask_ends(progress)
            elif progress.phase is Phase.WHOLE and progress.is_fresher_than_saved(FRESHNESS_MS):
                part = ShardWrite(progress.shard, progress.whole_state())
                self._outbox.actions.append(Write([part]))
        self._copy.advance()

    def topic_ids(self, request: int, ids: Mapping[str, str]) -> None:
        """Compare the topic ids, without topics that do not exist, with those from before."""
        if request <= self._ids_answered:
            return
        self._ids_answered = request
        if not {*self._changelogs, self._snapshots_topic} <= ids.keys():
            return
        known = self._topic_ids
        if known is None and self._saved is not None:
            known = self._saved.topic_ids
        if known is not None and any(known.get(each) != ids[each] for each in self._changelogs):
            self._throw_away()
            return
        before = self._topic_ids
        self._topic_ids = self._copy.topic_ids = dict(ids)
        if before is None or before[self._snapshots_topic] != ids[self._snapshots_topic]:
            self._log.restart(digest_topic_ids({each: ids[each] for each in self._changelogs}))
            self._outbox.actions.append(ReadSnapshots())
        if before is None:
            self._read_kept()
        self._copy.confirm(request)
        self._copy.advance()

    def snapshot(self, record: SnapshotRecord) -> None:
        """Add a record of the snapshots topic."""
        self._log.add(record, self._copy.now)
        if record.topics != self._log.topics and self._ids_answered >= self._ids_asked:
            # Either the record is an old leader's, or the topics are others by now.
            self._ask_topic_ids()
        elif self._log.is_live:
            self._use_records()

    def refuse_snapshot(self, problem: str) -> None:
        """Set why a record of the snapshots topic cannot be read."""
        self._log.problem = problem

    def end_of_snapshots(self) -> None:
        """Use the records of the snapshots topic, which was read to its end."""
        if not self._log.is_live:
            self._log.go_live(self._copy.now)
            self._use_records()

    def records(self, partition: TopicPartition, reading: int, changes: Changes) -> None:
        """Add records of a changelog partition, in the order of their offsets.

        ``reading`` is the number of the `Read` action.
        """
        progress = self._copy.reading_of(partition, reading)
        if progress is not None and changes.offsets:
            progress.partitions[partition].add(changes)
            self._copy.advance()
            self._copy.limit_waiting()

    def end_of_partition(self, partition: TopicPartition, reading: int, offset: int) -> None:
        """Set that a changelog partition has no more records below ``offset``."""
        progress = self._copy.reading_of(partition, reading)
        if progress is None:
            return
        each = progress.partitions[partition]
        each.position = max(each.position, offset)
        is_short = each.position < progress.base_ends[partition]
        if progress.phase is Phase.READING and is_short and progress.short_since is None:
            progress.short_since = self._copy.now
        self._copy.advance()

    def committed_ends(self, request: int, ends: Mapping[TopicPartition, int]) -> None:
        """Use the answer to `AskEnds`."""
        for progress in self._copy.shards.values():
            if progress.phase is Phase.ASKING and progress.request == request:
                progress.asked_ends = ends
                progress.answered_at = self._outbox.requests
                progress.phase = Phase.REACHING
        self._copy.advance()

    def _ask_topic_ids(self) -> None:
        self._ids_asked = self._copy.ask_topic_ids()
        self._ids_asked_at = self._copy.now

    def _use_records(self) -> None:
        newest = self._log.newest
        if self._history is not None and (newest is None or newest.history != self._history):
            self._throw_away()
            return
        if newest is None:
            return
        self._history = newest.history
        if self._copy.head is None:
            self._copy.head = (self._saved.record if self._saved else None) or newest
            self._copy.show_saved(self._copy.shards.values())
        for progress in self._copy.shards.values():
            if progress.phase is Phase.WHOLE and progress.base == newest.snapshot:
                progress.refresh(newest, self._copy.now)
        self._copy.advance()

    def _read_kept(self) -> None:
        for shard in sorted(self._kept - self._copy.shards.keys()):
            self._copy.add_shard(shard, self._saved_shards.pop(shard, None))
        self._copy.advance()

    def _throw_away(self) -> None:
        """Forget the copy, and begin again with the topics that there are."""
        for progress in self._copy.shards.values():
            self._outbox.actions += [Stop(name) for name in progress.partitions]
        self._outbox.actions.append(ThrowAway())
        self._start(SavedCopy(), self._copy.now)
