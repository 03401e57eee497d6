"""An instance decides by the reports of the members that it knows."""

from __future__ import annotations

from headrace.queries.copy.layout import CopyLayout, Shard, ShardGroup, StoreLayout
from headrace.queries.known_members import KnownMembers
from headrace.queries.members import MemberStatus, shard_name
from headrace.runtime.snapshots import SnapshotRecord
from tests.unit.queries.snapshot_records import make_record

LAYOUT = CopyLayout(
    "layout",
    (
        ShardGroup("0", (StoreLayout("app-a"),)),
        ShardGroup("global", (StoreLayout("app-g"),), is_global=True),
    ),
)
SHARDS = [Shard("0", partition) for partition in range(4)]
GLOBAL = Shard("global", 0)
RECORD: SnapshotRecord = make_record(7, ends={"app-a": [0] * 4, "app-g": [0]})
ME, OTHER = "me:1", "other:1"


def ready(name: str, *shards: Shard, number: int = 0, run: str = "1") -> MemberStatus:
    return MemberStatus(name=name, ready=tuple(map(shard_name, shards)), run=run, number=number)


def test_an_instance_keeps_its_placed_shards_and_all_global_ones() -> None:
    known = KnownMembers(ME, LAYOUT, standbys=0)
    known.set_members([ME, OTHER], 0)

    placement = known.placement(RECORD, (), 0)

    assert {len(names) for shard, names in placement.shards.items() if shard != GLOBAL} == {1}
    own = {shard for shard in SHARDS if placement.shards[shard] == (ME,)}
    assert 0 < len(own) < 4
    assert placement.kept == placement.placed == {*own, GLOBAL}
    assert placement.shards[GLOBAL] == (ME, OTHER)


def test_an_old_holder_keeps_a_shard_until_the_new_one_was_ready_for_10_seconds() -> None:
    known = KnownMembers(ME, LAYOUT, standbys=0)
    known.set_members([ME, OTHER], 0)
    moved = next(
        shard for shard in SHARDS if ME not in known.placement(RECORD, (), 0).shards[shard]
    )

    assert moved in known.placement(RECORD, SHARDS, 0).kept
    for now in range(1_000, 11_000, 1_000):
        known.note(ready(ME, *SHARDS, number=now), now)
        known.note(ready(OTHER, moved, number=now), now)
        placement = known.placement(RECORD, SHARDS, now)
        assert moved in placement.kept
        assert placement.shards[moved] == (OTHER, ME)
    known.note(ready(OTHER, moved, number=11_000), 11_000)

    assert moved not in known.placement(RECORD, SHARDS, 11_000).kept


def test_a_break_in_readiness_starts_the_10_seconds_again() -> None:
    known = KnownMembers(ME, LAYOUT, standbys=0)
    known.set_members([ME, OTHER], 0)
    moved = next(
        shard for shard in SHARDS if ME not in known.placement(RECORD, (), 0).shards[shard]
    )
    for now in range(0, 9_000, 1_000):
        known.note(ready(OTHER, moved, number=now), now)
        known.placement(RECORD, SHARDS, now)

    # It is silent for more than 3 s, which counts as not ready.
    known.placement(RECORD, SHARDS, 12_000)
    known.note(ready(OTHER, moved, number=13_000), 13_000)

    assert moved in known.placement(RECORD, SHARDS, 13_000).kept


def test_the_shards_of_a_member_that_is_gone_are_restored_after_30_seconds() -> None:
    known = KnownMembers(ME, LAYOUT, standbys=1)
    third = "third:1"
    known.set_members([ME, OTHER, third], 0)
    before = known.placement(RECORD, (), 0)
    # Every shard has a ready copy elsewhere.
    known.set_members([ME, third], 1_000)

    for now in (1_000, 20_000):
        known.note(ready(third, *SHARDS, number=now), now)
        assert known.placement(RECORD, (), now).placed == before.placed
    known.note(ready(third, *SHARDS, number=31_000), 31_000)

    assert known.placement(RECORD, (), 31_000).placed == {*SHARDS, GLOBAL}


def test_a_shard_without_a_ready_copy_is_restored_at_once() -> None:
    known = KnownMembers(ME, LAYOUT, standbys=0)
    known.set_members([ME, OTHER], 0)
    known.set_members([ME], 1_000)

    assert known.placement(RECORD, (), 1_000).placed == {*SHARDS, GLOBAL}


def test_the_newest_word_of_a_member_counts_and_strangers_are_ignored() -> None:
    known = KnownMembers(ME, LAYOUT, standbys=0)
    known.set_members([ME, OTHER], 0)

    assert known.note(ready(OTHER, SHARDS[0], number=5), 5)
    assert not known.note(ready(OTHER, number=4), 6)
    assert not known.note(ready(OTHER, SHARDS[0], number=6), 7)
    assert not known.note(ready("stranger:1"), 8)

    assert known.statuses() == {OTHER: ready(OTHER, SHARDS[0], number=6)}
    known.set_members([ME], 9)
    assert known.statuses() == {}
    assert known.peers == []
    assert known.is_member


def test_a_member_that_restarts_is_heard_whatever_it_said_before() -> None:
    known = KnownMembers(ME, LAYOUT, standbys=0)
    known.set_members([ME, OTHER], 0)
    known.note(ready(OTHER, SHARDS[0], number=700), 5)

    restarted = ready(OTHER, SHARDS[1], number=1, run="2")

    assert known.note(restarted, 6)
    assert known.statuses() == {OTHER: restarted}


def test_a_shard_is_named_by_group_and_partition() -> None:
    assert shard_name(Shard("a/b", 3)) == "a/b/3"


def test_a_shard_comes_from_ready_members_of_the_same_history_the_newest_first() -> None:
    known = KnownMembers(ME, LAYOUT, standbys=0)
    names = ["a:1", "b:1", "c:1", "old:1", "reset:1", "program:1"]
    known.set_members([ME, *names, "silent:1"], 0)
    assert known.awaits_answers(0)
    shard = shard_name(SHARDS[0])

    def say(name: str, number: int, history: str = RECORD.history, layout: str = "layout") -> None:
        status = MemberStatus(
            name=name, history=history, layout=layout, shards={shard: number}, ready=(shard,)
        )
        known.note(status, 0 if name == "old:1" else 1_000)

    say(ME, 9)
    say("a:1", 6)
    say("b:1", 7)
    known.note(MemberStatus(name="c:1", history=RECORD.history, shards={shard: 7}), 1_000)
    say("old:1", 7)
    say("reset:1", 7, history="another")
    say("program:1", 7, layout="another")

    assert known.awaits_answers(1_999)
    assert not known.awaits_answers(2_000)
    assert known.holders(SHARDS[0], RECORD, 3_500) == ["b:1", "a:1"]
    assert known.holders(SHARDS[1], RECORD, 3_500) == []
