"""The judge: compares each answer with the orders, and keeps what breaks an invariant."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from chaos.queries.expected import Orders, Stores, position_of
from chaos.queries.prices import Prices
from chaos.queries.program import LATE, VERSIONS, WINDOWS
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord

MOST_BEHIND = 3
BEHIND_SECONDS = 3.0
BEHIND_ANSWERS = 100
"""An instance that has given so many answers was not held up by a busy machine."""
_MOST_PROBLEMS = 20
_MOST_BODIES = 20_000
_KEPT_BODIES = 300
"""So many snapshots are kept by a copy at most."""


class _Followed(NamedTuple):
    """The time at which the campaign read a snapshot record."""

    snapshot: int
    at: float
    answers: Mapping[str, int]
    """How many answers each instance had given by then."""


class Judge:
    """All knowledge about the application, and all that is wrong.

    Args:
        orders: The orders that were written.
        prices: The prices that were written.
        behind_seconds: For how long an answer may be more than three snapshots behind.
    """

    def __init__(
        self, orders: Orders, prices: Prices, behind_seconds: float = BEHIND_SECONDS
    ) -> None:
        self.problems: list[str] = []
        """The broken invariants, with the reasons."""
        self.counts: Counter[str] = Counter()
        """Answers by kind."""
        self.tokens: set[Token] = set()
        """The snapshots that pinned answers were of."""
        self.longest_gap = 0.0
        """The longest time without an answer to an unpinned read."""
        self._orders, self._prices = orders, prices
        self._behind_seconds = behind_seconds
        self._answered_at: float | None = None
        self._records: dict[Token, SnapshotRecord] = {}
        self._positions: dict[Token, Mapping[str, Sequence[int]]] = {}
        self._epochs: dict[int, int] = {}
        self._followed: list[_Followed] = []
        self._answers: Counter[str] = Counter()
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
                answers = dict(self._answers)
                self._followed.append(_Followed(record.snapshot, time.monotonic(), answers))
                self._forget_old(record.snapshot - _KEPT_BODIES)

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

    def time_at(self, token: Token, back_ms: int) -> int:
        """Return a time so long before the newest order that a known snapshot reflects."""
        position = self.position_of(token)
        assert position is not None, "known"
        return self._orders.recent_time(position_of(position), back_ms)

    def expected_history(self, store: str, user: str, token: Token, as_of: int = 0) -> Any:
        """Return what a known snapshot has of a user: windows, sessions, a version or a price."""
        position = self.position_of(token)
        assert position is not None, "known"
        if store == LATE:
            return self._prices.latest(user, position)
        offsets = tuple(max(0, each) for each in position_of(position))
        if store == VERSIONS:
            return self._orders.version(user, offsets, as_of)
        find = self._orders.windows if store == WINDOWS else self._orders.sessions
        return find(user, offsets)

    def note_answer(self, kind: str, token: Token) -> None:
        """Count an answer that was compared."""
        with self._held:
            self.counts[kind] += 1
            if kind == "pinned":
                self.tokens.add(token)

    def note_life(self, instance: str) -> None:
        """Note that an instance has answered anything."""
        with self._held:
            self._answers[instance] += 1

    def note_unpinned(self, instance: str, asked_at: float, token: Token) -> None:
        """Check that an answer is not far behind (Q10), and measure the time since the last.

        On a busy machine an instance may stand still for a while, but it answers nothing
        meanwhile. A frozen copy answers on and on.
        """
        with self._held:
            index = bisect_right(self._followed, token.snapshot, key=lambda each: each.snapshot)
            newer = self._followed[index:]
            if len(newer) > MOST_BEHIND:
                fourth = newer[MOST_BEHIND]
                late = asked_at - fourth.at
                answers = self._answers[instance] - fourth.answers.get(instance, 0)
                if late > self._behind_seconds and answers > BEHIND_ANSWERS:
                    text = (
                        f"an answer of {instance} at {token} is {len(newer)} behind, "
                        f"{late:.1f} s and {answers} answers late"
                    )
                    self.report("Q10", text)
            now = time.monotonic()
            if self._answered_at is not None:
                self.longest_gap = max(self.longest_gap, now - self._answered_at)
            self._answered_at = now

    def check_enough(self, snapshots: int, kinds: Iterable[str]) -> None:
        """Check that pinned answers were of many snapshots, and answers of every kind.

        A copy that stands still stays right about its snapshot.
        """
        with self._held:
            if len(self.tokens) < snapshots:
                text = (
                    f"pinned answers of only {len(self.tokens)} snapshots, {snapshots} are needed"
                )
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
            reader = (instance, life, key)
            last = self._newest.get(reader)
            if last is not None and last.history == token.history and not token.is_at_least(last):
                self.report("Q4", f"{instance} went back from {last} to {token} for {key}")
            self._newest[reader] = token

    def _forget_old(self, before: int) -> None:
        """Forget the bytes of snapshots that no copy keeps."""
        if len(self._bodies) > _MOST_BODIES:
            for name in [each for each in self._bodies if each[0].snapshot < before]:
                del self._bodies[name]
