"""The reports of all instances that one of them has, and the shards that it keeps therefore.

It has no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headrace.queries.copy.layout import CopyLayout, Shard
from headrace.queries.members import MemberStatus, shard_name
from headrace.queries.placement import is_shard_kept, place_while_members_return
from headrace.runtime.snapshots import SnapshotRecord

FRESH_MS = 3_000
"""The report of a member is out of date after this time without a newer one."""
ANSWER_MS = 2_000
"""For how long an instance waits for the first answer of a member before it restores a shard."""
_FORGOTTEN_MS = 600_000
"""After this time a member that is gone is forgotten."""


@dataclass(frozen=True)
class Placement:
    """The instances that have each shard, and the shards that one instance keeps."""

    shards: Mapping[Shard, tuple[str, ...]]
    """The instances to ask for each shard: those that should have it, then others that have it."""
    placed: frozenset[Shard]
    """The shards that the instance should have."""
    kept: frozenset[Shard]
    """The shards that the instance keeps: also those that others do not have yet."""


class KnownMembers:
    """The members of the group, and what each said last.

    ``name`` is that of this instance, and ``standbys`` the setting ``num.standby.replicas``.
    """

    def __init__(self, name: str, layout: CopyLayout, standbys: int) -> None:
        self._name = name
        self._layout = layout
        self._standbys = standbys
        self._present: frozenset[str] | None = None
        self._gone_at: dict[str, int] = {}
        self._seen_at: dict[str, int] = {}
        """Since when each member is in the group."""
        self._statuses: dict[str, tuple[MemberStatus, int]] = {}
        """The last report of each member, and when it arrived."""
        self._ready_since: dict[Shard, dict[str, int]] = {}

    @property
    def members(self) -> frozenset[str] | None:
        """The members of the group; None: it was not described yet."""
        return self._present

    @property
    def peers(self) -> list[str]:
        """The other members of the group, sorted."""
        return sorted((self._present or frozenset()) - {self._name})

    @property
    def is_known(self) -> bool:
        """Return whether the group was described."""
        return self._present is not None

    @property
    def is_member(self) -> bool:
        """Return whether the group has this instance."""
        return self._present is not None and self._name in self._present

    def statuses(self) -> dict[str, MemberStatus]:
        """Return what each member said last."""
        return {name: status for name, (status, _) in self._statuses.items()}

    def set_members(self, names: Collection[str], now: int) -> None:
        """Set the members of the group."""
        for name in (self._present or frozenset()).difference(names):
            self._gone_at[name] = now
        self._present = frozenset(names)
        self._seen_at = {name: self._seen_at.get(name, now) for name in names}
        for name in [*self._gone_at]:
            if name in self._present or now - self._gone_at[name] > _FORGOTTEN_MS:
                del self._gone_at[name]
        for name in self._statuses.keys() - self._present - {self._name}:
            del self._statuses[name]

    def note(self, status: MemberStatus, now: int) -> bool:
        """Remember what a member says; return whether it differs from what it said before."""
        if self._present is not None and status.name not in {*self._present, self._name}:
            return False
        before, _ = self._statuses.get(status.name, (None, 0))
        # A status of another run counts: the member has restarted.
        if before is not None and before.run == status.run and before.number > status.number:
            return False
        self._statuses[status.name] = status, now
        return before is None or _facts_of(before) != _facts_of(status)

    def awaits_answers(self, now: int) -> bool:
        """Return whether this instance still waits for the first answer of a new member."""
        return any(
            name not in self._statuses and now - self._seen_at[name] < ANSWER_MS
            for name in self.peers
        )

    def holders(self, shard: Shard, record: SnapshotRecord, now: int) -> list[str]:
        """Return the other members that have a ready copy of a shard, the newest first."""
        name = shard_name(shard)
        found = [
            (-status.shards.get(name, -1), member)
            for member, (status, arrived) in self._statuses.items()
            if member != self._name
            if name in status.ready and now - arrived <= FRESH_MS
            if status.history == record.history and status.layout == self._layout.digest
        ]
        return [member for _, member in sorted(found)]

    def placement(self, record: SnapshotRecord, held: Collection[Shard], now: int) -> Placement:
        """Return where the shards of a snapshot are, and which this instance keeps.

        Args:
            record: The newest snapshot.
            held: The shards that this instance has.
            now: The time in milliseconds.
        """
        members = {*(self._present or ()), self._name}
        shards = [*self._layout.shards(record, of_globals=False)]
        everywhere = [*self._layout.shards(record, of_globals=True)]
        ready = self._ready([*shards, *everywhere], now)
        placed = place_while_members_return(
            shards, members, self._gone_at, ready, self._standbys, now
        )
        self._follow_readiness(ready, now)
        own = {shard for shard in shards if self._name in placed[shard]}
        kept = {
            shard
            for shard in set(held).intersection(shards)
            if is_shard_kept(self._name, placed[shard], self._ready_since.get(shard, {}), now)
        }
        asked: dict[Shard, tuple[str, ...]] = {}
        asked |= dict.fromkeys(everywhere, (self._name, *self.peers))
        for shard, names in placed.items():
            there = [each for each in names if each in members]
            asked[shard] = (*there, *sorted(ready[shard].difference(there)))
        own.update(everywhere)
        return Placement(asked, frozenset(own), frozenset(own | kept))

    def _ready(self, shards: Collection[Shard], now: int) -> dict[Shard, set[str]]:
        """Return the members that have a ready copy of each shard."""
        fresh = [
            (name, set(status.ready))
            for name, (status, arrived) in self._statuses.items()
            if now - arrived <= FRESH_MS
        ]
        return {
            shard: {name for name, ready in fresh if shard_name(shard) in ready} for shard in shards
        }

    def _follow_readiness(self, ready: Mapping[Shard, Collection[str]], now: int) -> None:
        self._ready_since = {
            shard: {name: self._ready_since.get(shard, {}).get(name, now) for name in names}
            for shard, names in ready.items()
        }


def _facts_of(status: MemberStatus) -> tuple[object, ...]:
    return (
        status.history,
        status.snapshot,
        status.shards,
        status.ready,
        status.is_ready,
        status.layout,
    )
