"""The snapshots that an instance can answer for: views of its database, and how long they stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

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
"""For how long a view stays after the last read of an open cursor."""
MOST_CURSOR_MS = 900_000
"""For how long cursors keep a view at most, from when it would have been dropped without them."""
MOST_SCANS = 8
"""How many scans wait for their next reader; each may hold a sorted partition."""
_MANY_CURSORS = 100
"""With so many cursors a view forgets those that have expired."""


def now_ms() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass
class ShownSnapshot:
    """A snapshot that readers can ask for."""

    record: SnapshotRecord
    view: DatabaseView
    shards: Mapping[Shard, int | None]
    """The shards that are whole, each with the snapshot before; None: the shard has jumped."""
    shown_at: int
    """When the snapshot was first shown, in milliseconds."""
    cursors: dict[str, int] = field(default_factory=dict, compare=False)
    """Until when each open cursor keeps the snapshot, in milliseconds."""
    outlived_at: int | None = field(default=None, compare=False)
    """Since when nothing but its cursors keeps the snapshot; None: something else does."""

    def open_cursors(self, now: int) -> int:
        """Return how many cursors are open."""
        return sum(until >= now for until in [*self.cursors.values()])

    def changed_keys(
        self, partition: TopicPartition, after: bytes | None = None
    ) -> Iterator[bytes]:
        """Yield the keys of the entries that changed since the snapshot before, in their order.

        They begin behind the key ``after``.
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

    One thread changes it, and any thread may read, and use cursors: a change replaces the
    dictionary.

    Args:
        clock: The time in milliseconds.
    """

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock
        self._shown: dict[int, ShownSnapshot] = {}
        self._scans: dict[Hashable, tuple[ShownSnapshot, Iterator[Any]]] = {}
        self._scanning = Lock()

    def __iter__(self) -> Iterator[ShownSnapshot]:
        return iter(self._shown.values())

    def add(self, shown: ShownSnapshot) -> None:
        """Add a snapshot; one with the same number had fewer shards and is replaced."""
        number = shown.record.snapshot
        before = self._shown.get(number)
        if before is not None:
            shown.shown_at, shown.cursors = before.shown_at, before.cursors
            shown.outlived_at = before.outlived_at
        self._replace({**self._shown, number: shown})

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

    def use_cursor(self, shown: ShownSnapshot, cursor: str) -> None:
        """Keep a snapshot for a cursor: open it, or note that it was read."""
        now, cursors = self._clock(), shown.cursors
        if len(cursors) >= _MANY_CURSORS:
            for each, until in [*cursors.items()]:
                if until < now:
                    cursors.pop(each, None)
        cursors[cursor] = now + CURSOR_MS

    def open_cursors(self) -> int:
        """Return how many cursors are open."""
        now = self._clock()
        return sum(shown.open_cursors(now) for shown in self._shown.values())

    def drop_old(self, now: int) -> list[int]:
        """Drop the snapshots that need not stay, and return their numbers."""
        kept = dict(self._shown)
        dropped = []
        count = 0
        for newer, (number, shown) in enumerate(reversed(self._shown.items())):
            age = now - shown.shown_at
            if newer < KEPT_VIEWS or (age <= KEPT_MS and newer < MOST_VIEWS):
                shown.outlived_at = None
            elif shown.outlived_at is None:
                shown.outlived_at = now
            if shown.outlived_at is None or (
                count < MOST_VIEWS
                and shown.open_cursors(now)
                and now - shown.outlived_at <= MOST_CURSOR_MS
            ):
                count += 1
            else:
                dropped.append(number)
                del kept[number]
        if dropped:
            self._replace(kept)
        return dropped[::-1]

    def clear(self) -> None:
        """Drop all snapshots."""
        self._replace({})

    def _replace(self, shown: dict[int, ShownSnapshot]) -> None:
        with self._scanning:
            self._shown = shown
            # A scan refers to the view of its snapshot.
            for key, (each, _) in [*self._scans.items()]:
                if not self._is_kept(each):
                    del self._scans[key]

    def _is_kept(self, shown: ShownSnapshot) -> bool:
        return self._shown.get(shown.record.snapshot) is shown

    def put_scan(self, shown: ShownSnapshot, position: Hashable, scan: Iterator[Any]) -> None:
        """Keep a scan that is costly to begin again for a later reader.

        Args:
            shown: The snapshot that it scans.
            position: The scan, and how far it is.
            scan: The rest of its rows.
        """
        with self._scanning:
            if self._is_kept(shown):
                while len(self._scans) >= MOST_SCANS:
                    del self._scans[next(iter(self._scans))]
                self._scans[shown.record.snapshot, position] = shown, scan

    def take_scan(self, shown: ShownSnapshot, position: Hashable) -> Iterator[Any] | None:
        """Return the rest of the rows of a scan; None: the reader begins again."""
        with self._scanning:
            found = self._scans.pop((shown.record.snapshot, position), None)
        return found[1] if found is not None and found[0] is shown else None
