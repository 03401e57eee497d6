"""Assigns shards to instances. Every instance computes the same from the same members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from headrace.queries.copy.layout import Shard

RETURN_MS = 30_000
"""For how long the shards of a member that is gone are not restored elsewhere."""
SETTLED_MS = 10_000
"""For how long all members of a shard must be ready before another holder drops it."""


def order_members(shard: Shard, members: Iterable[str]) -> list[str]:
    """Return members in the order of a shard: rendezvous hashing."""
    name = f"{shard.group}/{shard.partition}"
    return sorted(members, key=lambda member: (_hash(f"{member}\n{name}"), member))


def place_shards(
    shards: Collection[Shard], members: Collection[str], standbys: int
) -> dict[Shard, tuple[str, ...]]:
    """Return the members of each shard: the active one first, then its standby copies.

    No member is active for more than its share of the shards, rounded up.

    Args:
        shards: The shards of the newest snapshot, without those of global stores.
        members: The names of the instances.
        standbys: ``num.standby.replicas``.
    """
    if not members:
        return dict.fromkeys(shards, ())
    share = -(-len(shards) // len(members))
    load: Counter[str] = Counter()
    placement = {}
    for shard in sorted(shards):
        order = order_members(shard, members)
        active = next(member for member in order if load[member] < share)
        load[active] += 1
        order.remove(active)
        placement[shard] = (active, *order[:standbys])
    return placement


def place_while_members_return(
    shards: Collection[Shard],
    members: Collection[str],
    gone_at: Mapping[str, int],
    ready: Mapping[Shard, Collection[str]],
    standbys: int,
    now: int,
) -> dict[Shard, tuple[str, ...]]:
    """Return the placement, in which a member that is gone keeps its shards for 30 s.

    A shard without a ready copy does not wait.

    Args:
        shards: The shards of the newest snapshot, without those of global stores.
        members: The instances that are there.
        gone_at: When each instance that is not there any more was last seen, in milliseconds.
        ready: The instances that have a ready copy of a shard.
        standbys: ``num.standby.replicas``.
        now: The time in milliseconds.
    """
    present = set(members)
    absent = {member for member, at in gone_at.items() if now - at < RETURN_MS} - present
    at_once = place_shards(shards, present, standbys)
    later = place_shards(shards, present | absent, standbys)
    return {
        shard: later[shard] if present.intersection(ready.get(shard, ())) else at_once[shard]
        for shard in shards
    }


def is_shard_kept(
    member: str,
    placed: Collection[str],
    ready_since: Mapping[str, int],
    now: int,
) -> bool:
    """Return whether a member that has a shard keeps it.

    A holder that is no longer placed keeps the shard until all placed members were ready for 10 s.

    Args:
        member: The holder.
        placed: The members of the shard in the present placement.
        ready_since: Since when each member has been ready without a break, in milliseconds.
        now: The time in milliseconds.
    """
    return (
        member in placed
        or not placed
        or not all(each in ready_since and now - ready_since[each] >= SETTLED_MS for each in placed)
    )


def _hash(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()
