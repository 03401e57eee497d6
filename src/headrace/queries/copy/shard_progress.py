"""The progress of one shard: the records read, those in the database, those that wait."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import islice

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.actions import Changes, ShardState, ShardWrite
from headrace.queries.copy.layout import Shard
from headrace.runtime.snapshots import SnapshotRecord


class Phase(Enum):
    """A state of a shard on its way to be shown; the letters are those of the protocol."""

    WHOLE = "whole"
    """The database has the shard at the snapshot that is shown."""
    READING = "a"
    """Reads to the ends of the newest record."""
    ASKING = "b, asked"
    """Waits for the committed ends."""
    REACHING = "b, answered"
    """Reads to the committed ends."""
    JOINING = "c"
    """Waits for a snapshot that has everything that was written."""


class PartitionProgress:
    """One changelog partition.

    Args:
        written: The offset behind the last record that the database has.
        has_copies: Whether a record may be there twice; it counts once.
    """

    def __init__(self, written: int, *, has_copies: bool = False) -> None:
        self.position = written
        """The reader has read every record below it."""
        self.written = written
        self.reading = 0
        """The number of the `Read` action."""
        self.asked = self.confirmed = written
        """The topic id was checked after the records below ``confirmed`` were read. The check for
        those below ``asked`` is under way."""
        self.waiting = Changes.of(())
        """The records that were read and are not written."""
        self.waiting_bytes = 0
        self._offsets: list[int] = []
        """Offsets of what was read, from the base of the shard on."""
        self._hashes: list[int] | None = [] if has_copies else None
        """A hash of each of these records, equal for its copies; None: there are no copies."""
        self._counts_from = 0

    def add(self, changes: Changes) -> None:
        """Add records that were read."""
        offsets = changes.offsets
        self.waiting.add(changes)
        self.waiting_bytes += changes.size()
        first = bisect_left(offsets, self._counts_from)
        self._offsets += offsets[first:]
        if self._hashes is not None:
            rows = zip(changes.timestamps, changes.keys, changes.values, strict=True)
            self._hashes += map(hash, islice(rows, first, None))
        self.position = max(self.position, offsets[-1] + 1)

    def count(self, start: int, end: int) -> int:
        """Return how many records with ``start <= offset < end`` were read."""
        first, last = bisect_left(self._offsets, start), bisect_left(self._offsets, end)
        return last - first if self._hashes is None else len({*self._hashes[first:last]})

    def count_from(self, start: int) -> None:
        """Count no records below ``start`` from now on."""
        self._counts_from = start
        first = bisect_left(self._offsets, start)
        del self._offsets[:first]
        if self._hashes is not None:
            del self._hashes[:first]

    def take(self, end: int | None = None) -> Changes:
        """Return what waits below ``end``, or all of it, as written from now on."""
        waiting = self.waiting
        count = len(waiting.offsets) if end is None else bisect_left(waiting.offsets, end)
        if count == len(waiting.offsets):
            taken, self.waiting, self.waiting_bytes = waiting, Changes.of(()), 0
        else:
            taken = waiting.cut(count)
            self.waiting_bytes -= taken.size()
        if taken.offsets:
            self.written = max(self.written, taken.offsets[-1] + 1)
        return taken


class ShardProgress:
    """One shard of an instance.

    Args:
        shard: Which.
        partitions: Its changelog partitions.
        state: Its state in the database.
        has_copies: Whether a changelog may have a record twice; it counts once.
    """

    def __init__(
        self,
        shard: Shard,
        partitions: Iterable[TopicPartition],
        state: ShardState,
        *,
        has_copies: bool = False,
    ) -> None:
        self.shard = shard
        self._has_copies = has_copies
        self.partitions = {
            name: PartitionProgress(state.offsets.get(name.topic, 0), has_copies=has_copies)
            for name in partitions
        }
        self.phase = Phase.READING if state.snapshot is None else Phase.WHOLE
        self.base = state.snapshot
        """The snapshot from which records are counted. A whole shard is whole at it."""
        self.base_ends = {name: each.written for name, each in self.partitions.items()}
        self.fresh_at = self._saved_fresh_at = state.fresh_at
        self.shown: int | None = None
        """The newest snapshot at which readers saw the shard."""
        self.previous: int | None = None
        """The snapshot from which the changed keys of ``shown`` count; None: it has jumped."""
        self.request = 0
        """The question for committed ends whose answer the shard waits for."""
        self.asked_at = 0
        self.asked_ends: Mapping[TopicPartition, int] = {}
        self.answered_at = 0
        """How many questions there were when the committed ends came."""
        self.short_since: int | None = None
        """Since when a partition ends below the ends of a record."""
        self._began_at_nothing = state.snapshot is None and not state.offsets
        self.is_too_slow = False
        """Whether the shard was read from the beginning, and was too old at its end."""

    @property
    def waiting_bytes(self) -> int:
        """Return how much waits to be written."""
        return sum(each.waiting_bytes for each in self.partitions.values())

    def ends(self, record: SnapshotRecord) -> dict[TopicPartition, int]:
        """Return the ends of the shard's partitions in a snapshot."""
        return {name: record.end(*name) for name in self.partitions}

    def has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether everything below the ends was read."""
        return all(each.position >= ends[name] for name, each in self.partitions.items())

    def is_confirmed(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether everything below the ends is known to be of the topics of the copy."""
        return all(each.confirmed >= ends[name] for name, each in self.partitions.items())

    def is_asked(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether a question whose answer confirms the ends is under way."""
        return all(each.asked >= ends[name] for name, each in self.partitions.items())

    def holds_only(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether the database has nothing behind the ends."""
        return all(each.written <= ends[name] for name, each in self.partitions.items())

    def ended_at(self, ends: Mapping[TopicPartition, int], marker_offsets: int) -> bool:
        """Return whether nothing but a marker was behind the ends when committed ends were asked.

        A shard that was whole and asked for nothing has counted every record since then.
        """
        asked = self.asked_ends
        return all(asked[name] <= ends[name] + marker_offsets for name in asked)

    def follows(self, record: SnapshotRecord) -> bool:
        """Return whether a snapshot follows the base, and the records read are its changes.

        The shard has reached the ends of the snapshot.
        """
        if record.since != self.base or record.changes is None:
            return False
        return all(
            each.count(self.base_ends[name], record.end(*name)) == (record.change_count(*name) or 0)
            for name, each in self.partitions.items()
        )

    def move_base(self, record: SnapshotRecord) -> None:
        """Count from another snapshot on."""
        self.base, self.base_ends = record.snapshot, self.ends(record)
        for name, each in self.partitions.items():
            each.count_from(self.base_ends[name])

    def write_part(self) -> ShardWrite | None:
        """Return a write, under the mark, of all that waits; None: nothing waits."""
        changes = {
            name: each.take() for name, each in self.partitions.items() if each.waiting.offsets
        }
        return ShardWrite(self.shard, self._state(None), changes) if changes else None

    def write_whole(self, record: SnapshotRecord, now: int) -> ShardWrite:
        """Return the write that makes the shard whole at a snapshot, which becomes the base."""
        lists_changes = self.phase is Phase.WHOLE
        ends = self.ends(record)
        changes = {name: each.take(ends[name]) for name, each in self.partitions.items()}
        self.previous = self.base if lists_changes else None
        self.phase = Phase.WHOLE
        self.refresh(record, now)
        self.move_base(record)
        self.shown = record.snapshot
        self.short_since = None
        self.asked_ends = {}
        self.is_too_slow = self._began_at_nothing = False
        state = self._state(record.snapshot)
        return ShardWrite(self.shard, state, changes, lists_changes=lists_changes)

    def restart(self, now: int) -> None:
        """Forget what was read: the shard begins at nothing."""
        self.is_too_slow = self._began_at_nothing
        self._began_at_nothing = True
        self.partitions = {
            name: PartitionProgress(0, has_copies=self._has_copies) for name in self.partitions
        }
        self.phase, self.base = Phase.READING, None
        self.fresh_at = now

    def is_fresher_than_saved(self, by_ms: int) -> bool:
        """Return whether the database has an older time at which the shard was whole."""
        return self.fresh_at - self._saved_fresh_at >= by_ms

    def refresh(self, record: SnapshotRecord, now: int) -> None:
        """Set that the shard is whole at a snapshot which was the newest when it was written."""
        self.fresh_at = max(self.fresh_at, min(record.at, now))

    def whole_state(self) -> ShardState:
        """Return what the database should remember of a whole shard."""
        return self._state(self.base)

    def _state(self, snapshot: int | None) -> ShardState:
        offsets = {name.topic: each.written for name, each in self.partitions.items()}
        if snapshot is not None:
            offsets = {name.topic: end for name, end in self.base_ends.items()}
        self._saved_fresh_at = self.fresh_at
        return ShardState(snapshot, offsets, self.fresh_at)
