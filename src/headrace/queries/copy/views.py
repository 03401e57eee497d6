"""The snapshots that an instance can answer for: views of its database, and how long they stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.brokers.log import TopicPartition
from headrace.errors import QueryError
from headrace.queries.copy.database import DatabaseView, prefix_end
from headrace.queries.copy.keys import changed_entry, changed_prefix
from headrace.queries.copy.layout import Shard
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord

KEPT_VIEWS = 30
KEPT_MS = 15_000
MOST_VIEWS = 300
CURSOR_MS = 60_000
"""For how long a view with an open cursor stays at most."""


@dataclass
class ShownSnapshot:
    """A snapshot that readers can ask for."""

    record: SnapshotRecord
    view: DatabaseView
    shards: Mapping[Shard, int | None]
    """The shards that are whole, each with the snapshot before; None: the shard has jumped."""
    shown_at: int
    """When the snapshot was first shown, in milliseconds."""
    cursors: int = field(default=0, compare=False)
    """How many cursors are open."""

    def changed_keys(
        self, partition: TopicPartition, after: bytes | None = None
    ) -> Iterator[bytes]:
        """Yield the keys of the entries that changed since the snapshot before, in their order.

        Args:
            partition: The changelog partition.
            after: The key behind which to begin.
        """
        prefix = changed_prefix(self.record.snapshot, partition)
        start = prefix
        if after is not None:
            start = max(prefix, changed_prefix(self.record.snapshot) + after + b"\0")
        end = prefix_end(prefix)
        for key, _ in self.view.scan(start, end) if start < end else ():
            yield changed_entry(key)


class KeptSnapshots:
    """The last snapshots of one history, by their numbers.

    One thread changes it, and any thread may read: a change replaces the dictionary.
    """

    def __init__(self) -> None:
        self._shown: dict[int, ShownSnapshot] = {}

    def __iter__(self) -> Iterator[ShownSnapshot]:
        return iter(self._shown.values())

    def add(self, shown: ShownSnapshot) -> None:
        """Add a snapshot; one with the same number had fewer shards and is replaced."""
        number = shown.record.snapshot
        before = self._shown.get(number)
        if before is not None:
            shown.shown_at, shown.cursors = before.shown_at, before.cursors
        self._shown = {**self._shown, number: shown}

    def at(self, token: Token) -> ShownSnapshot:
        """Return the snapshot that a token names.

        Raises:
            QueryError: It is not kept, or of another history.
        """
        shown = self._shown.get(token.snapshot)
        if shown is None or token_of(shown.record) != token:
            msg = f"Snapshot {token} is gone. Ask again without a token."
            raise QueryError(msg)
        return shown

    def newest_of(self, shard: Shard) -> ShownSnapshot | None:
        """Return the newest snapshot that has a shard."""
        for each in reversed(self._shown.values()):
            if shard in each.shards:
                return each
        return None

    def newest_with(self, shards: Collection[Shard]) -> ShownSnapshot | None:
        """Return the newest snapshot that has all of some shards."""
        for each in reversed(self._shown.values()):
            if all(shard in each.shards for shard in shards):
                return each
        return None

    def changes_after(self, token: Token, shard: Shard) -> list[ShownSnapshot] | None:
        """Return the snapshots whose changed keys follow a token without a gap, oldest first.

        None: one of them is not kept or was jumped over, or the token is of another history. A
        reader then begins again with a whole read.
        """
        found: list[ShownSnapshot] = []
        kept = self._shown
        newest = self.newest_of(shard)
        number = newest.record.snapshot if newest else None
        while number is not None and number > token.snapshot:
            shown = kept.get(number)
            if shown is None or shard not in shown.shards:
                return None
            found.append(shown)
            number = shown.shards[shard]
        if newest is None or number != token.snapshot:
            return None
        return found[::-1] if token_of(newest.record).history == token.history else None

    def drop_old(self, now: int) -> list[int]:
        """Drop the snapshots that need not stay, and return their numbers."""
        kept = dict(self._shown)
        dropped = []
        for newer, (number, shown) in zip(
            reversed(range(len(kept))), self._shown.items(), strict=True
        ):
            age = now - shown.shown_at
            is_kept = newer < KEPT_VIEWS or (age <= KEPT_MS and newer < MOST_VIEWS)
            if not is_kept and not (shown.cursors and age <= CURSOR_MS):
                dropped.append(number)
                del kept[number]
        if dropped:
            self._shown = kept
        return dropped

    def clear(self) -> None:
        """Drop all snapshots."""
        self._shown = {}
