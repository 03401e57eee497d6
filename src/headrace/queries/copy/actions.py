"""The actions that an applier asks its host for, and the facts that the database keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.layout import Shard
from headrace.runtime.snapshots import SnapshotRecord


class Change(NamedTuple):
    """A changelog record that was read."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes | None


class Changes(NamedTuple):
    """Changelog records in columns, in the order of their offsets: no object per record."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes]
    values: list[bytes | None]

    @classmethod
    def of(cls, changes: Iterable[Change]) -> Changes:
        """Return changes in columns."""
        rows = list(changes)
        return cls(*map(list, zip(*rows, strict=True))) if rows else cls([], [], [], [])

    def rows(self) -> Iterator[tuple[int, int, bytes, bytes | None]]:
        """Yield offset, timestamp, key and value of each record."""
        return zip(*self, strict=True)

    def size(self) -> int:
        """Return how many bytes the keys and values have."""
        return sum(map(len, self.keys)) + sum(map(len, filter(None, self.values)))

    def add(self, others: Changes) -> None:
        """Add records behind these."""
        self.offsets.extend(others.offsets)
        self.timestamps.extend(others.timestamps)
        self.keys.extend(others.keys)
        self.values.extend(others.values)

    def cut(self, count: int) -> Changes:
        """Remove the first records, and return them."""
        offsets, timestamps, keys, values = self
        taken = Changes(offsets[:count], timestamps[:count], keys[:count], values[:count])
        for column in (offsets, timestamps, keys, values):
            del column[:count]
        return taken


class ShardState(msgspec.Struct, frozen=True):
    """The facts about a shard in the database."""

    snapshot: int | None
    """The snapshot at which the shard is whole; None marks a shard that is not."""
    offsets: dict[str, int]
    """By changelog the offset behind the last record that the database has."""
    fresh_at: int
    """When the shard was last whole, or began at nothing, in milliseconds."""

    def taken_over(self, now: int) -> ShardState:
        """Return the state in which another instance takes the shard over: it must catch up."""
        # The clock of the instance that had it may be ahead.
        return ShardState(None, self.offsets, min(self.fresh_at, now))


class CopyState(msgspec.Struct, frozen=True):
    """The facts about the whole copy in the database."""

    layout: str
    topic_ids: dict[str, str]
    record: SnapshotRecord | None
    """The newest snapshot that was applied; None: none yet."""


class CopyIdentity(msgspec.Struct, frozen=True):
    """The identity of a copy. Entries of copies with the same identity can be mixed."""

    layout: str
    history: str
    topic_ids: dict[str, str]
    """The ids of the changelogs."""


@dataclass(frozen=True)
class SavedCopy:
    """The contents of an instance's database at its start."""

    copy: CopyState | None = None
    shards: Mapping[Shard, ShardState] = field(default_factory=dict)


@dataclass(frozen=True)
class Read:
    """Read a changelog partition. An earlier read, under another number, is void."""

    reading: int
    """The number that what is read carries."""
    partition: TopicPartition
    offset: int
    """Where to begin; the first record that is there, if those before it are gone."""


@dataclass(frozen=True)
class Stop:
    """Read a changelog partition no longer."""

    partition: TopicPartition


@dataclass(frozen=True)
class ReadSnapshots:
    """Read the snapshots topic from 64 offsets before its end, and then what is new."""


@dataclass(frozen=True)
class AskEnds:
    """Ask for the committed ends of partitions."""

    request: int
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True)
class AskTopicIds:
    """Ask for the ids of all topics that the copy depends on."""

    request: int


@dataclass(frozen=True)
class ShardWrite:
    """The part of a shard in a write."""

    shard: Shard
    state: ShardState | None
    """The new state; None removes the shard."""
    changes: Mapping[TopicPartition, Changes] = field(default_factory=dict)
    wipes: bool = False
    """Whether everything that the database has of the shard goes first."""
    lists_changes: bool = False
    """Whether the changed keys are those from the snapshot before to this one."""


@dataclass(frozen=True)
class Write:
    """Change the database, all of it together."""

    parts: Sequence[ShardWrite]
    copy: CopyState | None = None
    """The new state of the copy; None: as before."""


@dataclass(frozen=True)
class Show:
    """Open a view of the database, and show it as a snapshot."""

    record: SnapshotRecord
    shards: Mapping[Shard, int | None]
    """The shards that are whole, each with the snapshot before, from which its changed keys count;
    None: the shard has jumped."""


@dataclass(frozen=True)
class ThrowAway:
    """Forget all views and everything that the database has."""


Action: TypeAlias = Read | Stop | ReadSnapshots | AskEnds | AskTopicIds | Write | Show | ThrowAway
