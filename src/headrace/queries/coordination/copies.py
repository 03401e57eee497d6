"""Chooses the instances that a coordinator asks for a shard, their order and the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.queries.coordination.queried_instance import QueriedInstance
from headrace.queries.copy.layout import Shard
from headrace.queries.members import MemberStatus, shard_name
from headrace.queries.tokens import Token, short_history, token_of
from headrace.runtime.snapshots import SnapshotRecord

HERE = ""
"""The name under which a coordinator asks its own instance."""
KNOWN_SECONDS = 0.01
"""For how long a coordinator uses what it knows of the others before it looks again."""
DOWN_SECONDS = 1.0
"""For how long an instance that did not answer is asked last."""


class _Copy(NamedTuple):
    """The state of a copy of a shard, as this instance knows it."""

    snapshot: int
    """The newest snapshot that it shows."""
    is_ready: bool


class _Peer(NamedTuple):
    """The last report of another instance."""

    name: str
    history: str
    shards: Mapping[str, int]
    ready: frozenset[str]


class Copies:
    """The copies of shards, as this instance knows them.

    Args:
        instance: The instance of this process.
        clock: The time in seconds.
    """

    def __init__(self, instance: QueriedInstance, clock: Callable[[], float]) -> None:
        self._instance = instance
        self._clock = clock
        self._down_until: dict[str, float] = {}
        self._floors: dict[Shard, Token] = {}
        self._peers: list[_Peer] = []
        self._peers_until = clock()

    def note_failure(self, member: str) -> None:
        """Ask an instance last for a while: it did not answer."""
        self._down_until[member] = self._clock() + DOWN_SECONDS

    def note_answer(self, member: str, status: MemberStatus | None) -> None:
        """Remember that an instance has answered, and what it says about itself."""
        self._down_until.pop(member, None)
        if status is not None:
            self._instance.note_status(status)
            self._peers_until = self._clock()

    def raise_floors(self, shards: Iterable[Shard], token: Token) -> None:
        """Remember what readers have seen of some shards: no later answer is older."""
        for shard in shards:
            floor = self._floors.get(shard)
            if floor is None or floor.history != token.history or floor.snapshot < token.snapshot:
                self._floors[shard] = token

    def floor(self, shards: Iterable[Shard], history: str) -> int:
        """Return the newest snapshot of a history that readers have seen of some shards."""
        floors = [self._floors.get(shard) for shard in shards]
        return max(
            (each.snapshot for each in floors if each and each.history == history), default=0
        )

    def passes_floor(self, shard: Shard, record: SnapshotRecord) -> bool:
        """Return whether readers have seen no newer snapshot of a shard, and remember this one."""
        floor = self._floors.get(shard)
        history, snapshot = short_history(record.history), record.snapshot
        if floor is not None and floor.history == history and snapshot <= floor.snapshot:
            return snapshot == floor.snapshot
        self._floors[shard] = Token(history, snapshot)
        return True

    def peers(self) -> list[str]:
        """Return the other instances; those that did not answer last come last."""
        now = self._clock()
        names = (each for each in self._instance.members() if each != self._instance.name)
        return sorted(names, key=lambda name: (self._down_until.get(name, now) > now, name))

    def newest_known(self, shard: Shard, history: str) -> int | None:
        """Return the newest snapshot that a ready copy of a shard is known to have."""
        known = self._known(shard, history).values()
        return max((each.snapshot for each in known if each.is_ready), default=None)

    def is_newer_elsewhere(self, shard: Shard, history: str, snapshot: int, member: str) -> bool:
        """Return whether a ready copy besides that of a member is known to have a snapshot."""
        now = self._clock()
        return any(
            name != member
            and copy.is_ready
            and copy.snapshot >= snapshot
            and self._down_until.get(name, now) <= now
            for name, copy in self._known(shard, history).items()
        )

    def to_ask(
        self, shard: Shard, history: str, snapshot: int = 0, *, is_pinned: bool = False
    ) -> list[str]:
        """Return the instances to ask for a shard, the first to ask first.

        Those that are known to have the snapshot come first, in the order of the placement, and
        this instance before all others. A pinned read may also ask copies that are not ready: what
        they show of the snapshot is the same.
        """
        known = self._known(shard, history)
        placed = self._instance.placement().get(shard, ())
        order = {HERE: -1} | {member: rank for rank, member in enumerate(placed)}
        now = self._clock()

        def rank(member: str) -> tuple[bool, bool, bool, int, str]:
            copy = known[member]
            return (
                self._down_until.get(member, now) > now,
                not copy.is_ready,
                copy.snapshot < snapshot,
                order.get(member, len(order)),
                member,
            )

        return sorted((each for each in known if is_pinned or known[each].is_ready), key=rank)

    def _known(self, shard: Shard, history: str) -> dict[str, _Copy]:
        """Return the copies of a shard of one history."""
        instance = self._instance
        if self._clock() >= self._peers_until:
            self._peers_until = self._clock() + KNOWN_SECONDS
            self._peers = [
                _Peer(name, short_history(status.history), status.shards, frozenset(status.ready))
                for name, status in instance.members().items()
                if name != instance.name and status.history is not None
            ]
        key = shard_name(shard)
        found = {
            peer.name: _Copy(peer.shards[key], key in peer.ready)
            for peer in self._peers
            if key in peer.shards and peer.history == history
        }
        shown = instance.snapshots.newest_of(shard)
        if shown is not None and token_of(shown.record).history == history:
            found[HERE] = _Copy(shown.record.snapshot, instance.is_shard_ready(shard))
        return found
