from __future__ import annotations

from collections import Counter

from headrace.queries.copy.layout import Shard
from headrace.queries.placement import (
    is_shard_kept,
    order_members,
    place_shards,
    place_while_members_return,
)

SHARDS = [Shard("0", partition) for partition in range(20)]
MEMBERS = ["a:1", "b:1", "c:1"]


def test_all_instances_compute_the_same() -> None:
    assert place_shards(SHARDS, MEMBERS, 1) == place_shards(SHARDS[::-1], {*MEMBERS}, 1)


def test_no_member_is_active_for_more_than_its_share() -> None:
    placement = place_shards(SHARDS, MEMBERS, 1)

    load = Counter(members[0] for members in placement.values())
    assert max(load.values()) <= 7
    assert all(len(members) == len({*members}) == 2 for members in placement.values())


def test_a_new_member_takes_shards_and_the_others_exchange_few() -> None:
    before = place_shards(SHARDS, MEMBERS, 0)

    after = place_shards(SHARDS, [*MEMBERS, "d:1"], 0)

    moved = [shard for shard in SHARDS if before[shard] != after[shard]]
    assert "d:1" in {members[0] for members in after.values()}
    assert len(moved) <= 12


def test_there_are_no_more_copies_than_members() -> None:
    assert place_shards([Shard("0", 0)], ["a:1"], 2) == {Shard("0", 0): ("a:1",)}
    assert place_shards([Shard("0", 0)], [], 2) == {Shard("0", 0): ()}


def test_a_member_that_is_gone_keeps_its_shards_for_30_seconds() -> None:
    ready = {shard: ["b:1"] for shard in SHARDS}
    present, gone = ["b:1", "c:1"], {"a:1": 1_000}

    soon = place_while_members_return(SHARDS, present, gone, ready, 1, 30_999)
    late = place_while_members_return(SHARDS, present, gone, ready, 1, 31_000)

    assert soon == place_shards(SHARDS, MEMBERS, 1)
    assert late == place_shards(SHARDS, present, 1)


def test_a_shard_without_a_ready_copy_does_not_wait() -> None:
    ready = {shard: ["b:1"] for shard in SHARDS[1:]} | {SHARDS[0]: ["a:1"]}

    placement = place_while_members_return(SHARDS, ["b:1", "c:1"], {"a:1": 0}, ready, 0, 1)

    assert placement[SHARDS[0]] == place_shards(SHARDS, ["b:1", "c:1"], 0)[SHARDS[0]]
    assert placement[SHARDS[1]] == place_shards(SHARDS, MEMBERS, 0)[SHARDS[1]]


def test_a_holder_keeps_a_shard_until_all_placed_members_were_ready_for_10_seconds() -> None:
    placed = ("a:1", "b:1")

    assert is_shard_kept("a:1", placed, {}, 0)
    assert is_shard_kept("c:1", placed, {"a:1": 0}, 99_000)
    assert is_shard_kept("c:1", placed, {"a:1": 0, "b:1": 1}, 10_000)
    assert not is_shard_kept("c:1", placed, {"a:1": 0, "b:1": 0}, 10_000)
    assert is_shard_kept("c:1", (), {}, 99_000)


def test_the_order_of_a_shard_has_every_member() -> None:
    assert sorted(order_members(SHARDS[0], MEMBERS)) == MEMBERS
