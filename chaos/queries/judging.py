"""The judge: compares each answer with the orders, and keeps what breaks an invariant."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chaos.queries.expected import Orders, Stores, position_of
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord

MOST_BEHIND = 3
_MOST_PROBLEMS = 20


class Judge:
    """All knowledge about the application, and all that is wrong.

    Args:
        orders: The orders that were written.
        behind_seconds: An answer may lack more than three snapshots only if the fourth was
            written less than this before the question.
    """

    def __init__(self, orders: Orders, behind_seconds: float) -> None:
        self.problems: list[str] = []
        """The broken invariants, with the reasons."""
        self.counts: Counter[str] = Counter()
        """Answers by kind."""
        self.tokens: set[Token] = set()
        """The snapshots that answers were of."""
        self.longest_gap = 0.0
        """The longest time without an answer to an unpinned read."""
        self._orders = orders
        self._behind_seconds = behind_seconds
        self._answered_at: float | None = None
        self._records: dict[Token, SnapshotRecord] = {}
        self._positions: dict[Token, Mapping[str, Sequence[int]]] = {}
        self._epochs: dict[int, int] = {}
        self._written: list[tuple[float, int]] = []
        self._bodies: dict[tuple[Token, str], bytes] = {}
        self._newest: dict[tuple[str, int, str], Token] = {}
        self._held = threading.RLock()

    def report(self, invariant: str, text: str) -> None:
        """Keep what broke an invariant."""
        with self._held:
            if len(self.problems) < _MOST_PROBLEMS:
                self.problems.append(f"{invariant}: {text}")

    @property
    def newest(self) -> SnapshotRecord | None:
        """Return the newest snapshot record that was read."""
        with self._held:
            newest = max(self._records, key=lambda each: each.snapshot, default=None)
            return None if newest is None else self._records[newest]

    def note_record(self, record: SnapshotRecord) -> None:
        """Note a record of the snapshots topic, in the order of the topic (Q9)."""
        token = token_of(record)
        with self._held:
            known = self._records.setdefault(token, record)
            self.stores_at(token, record.position)
            if known.position != record.position or known.store_times != record.store_times:
                self.report("Q9", f"two records of {token} differ: {known} and {record}")
            last = self._epochs.get(record.leader_epoch, -1)
            if record.snapshot < last:
                self.report("Q9", f"leader {record.leader_epoch} wrote {token} after {last}")
            self._epochs[record.leader_epoch] = record.snapshot
            if known is record:
                self._written.append((time.monotonic(), record.snapshot))

    def stores_at(self, token: Token, position: Mapping[str, Sequence[int]]) -> Stores | None:
        """Return what the stores must have at a snapshot; None: a problem was reported."""
        with self._held:
            known = self._positions.setdefault(token, position)
            if known != position:
                self.report("Q9", f"{token} has two positions: {position}, {known}")
                return None
        stores = self._orders.at(position_of(position))
        if stores is None:
            self.report("Q1", f"{token} reflects orders that nobody wrote: {position}")
        return stores

    def position_of(self, token: Token) -> Mapping[str, Sequence[int]] | None:
        """Return the position of a snapshot; None: nobody has seen it."""
        with self._held:
            return self._positions.get(token)

    def note_answer(self, kind: str, token: Token) -> None:
        """Count an answer that was compared."""
        with self._held:
            self.counts[kind] += 1
            self.tokens.add(token)

    def note_unpinned(self, asked_at: float, token: Token) -> None:
        """Check that an answer is not far behind (Q10), and measure the time since the last."""
        with self._held:
            index = bisect_right(self._written, token.snapshot, key=lambda each: each[1])
            newer = self._written[index:]
            if len(newer) > MOST_BEHIND:
                late = asked_at - newer[MOST_BEHIND][0]
                if late > self._behind_seconds:
                    text = f"an answer of {token} is {len(newer)} behind, {late:.1f} s late"
                    self.report("Q10", text)
            now = time.monotonic()
            if self._answered_at is not None:
                self.longest_gap = max(self.longest_gap, now - self._answered_at)
            self._answered_at = now

    def check_enough(self, snapshots: int, kinds: Iterable[str]) -> None:
        """Check that answers were of many snapshots, and of every kind.

        A copy that stands still stays right about its snapshot.
        """
        with self._held:
            if len(self.tokens) < snapshots:
                text = f"answers of only {len(self.tokens)} snapshots, {snapshots} are needed"
                self.report("check", text)
            for kind in kinds:
                if not self.counts[kind]:
                    self.report("check", f"no answer of the kind {kind!r}")

    def compare(self, what: str, token: Token, found: Any, expected: Any) -> None:
        """Check what an answer has (Q1, Q6)."""
        if found != expected:
            self.report("Q1", f"{what} at {token} is {found}, not {expected}")

    def note_body(self, what: str, token: Token, body: bytes) -> None:
        """Check that the bytes of an answer are those of every copy (Q3)."""
        with self._held:
            if self._bodies.setdefault((token, what), body) != body:
                self.report("Q3", f"{what} at {token} has other bytes on another copy")

    def note_forward(self, instance: str, life: int, key: str, token: Token) -> None:
        """Check that one running instance does not go back (Q4)."""
        with self._held:
            place = (instance, life, key)
            last = self._newest.get(place)
            if last is not None and last.history == token.history and not token.is_at_least(last):
                self.report("Q4", f"{instance} went back from {last} to {token} for {key}")
            self._newest[place] = token

    def forget_old(self, before: int) -> None:
        """Forget the bytes of snapshots that no copy keeps."""
        with self._held:
            for name in [each for each in self._bodies if each[0].snapshot < before]:
                del self._bodies[name]
