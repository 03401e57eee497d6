"""The writes of a copy: at once, or in parts between which readers have their turn."""

from __future__ import annotations

import pytest

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.actions import Change, Changes, CopyState, ShardState, ShardWrite, Write
from headrace.queries.copy.database import WriteBatch
from headrace.queries.copy.keys import CHANGED_KEYS, entry_prefix
from headrace.queries.copy.layout import CopyLayout, Shard, ShardGroup, StoreLayout
from headrace.queries.copy.local_copy import LocalCopy
from headrace.queries.copy.memory_database import MemoryDatabase
from tests.unit.queries.snapshot_records import make_record

LAYOUT = CopyLayout("layout", (ShardGroup("0", (StoreLayout("app-a"),)),))
SHARD = Shard("0", 0)
NAME = TopicPartition("app-a", 0)


class FullError(Exception):
    """The database takes no more writes."""


class NotedDatabase(MemoryDatabase):
    """Counts the entries of each write, and fails after some."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.most = 1_000

    def write(self, batch: WriteBatch) -> None:
        if len(self.sizes) == self.most:
            raise FullError
        self.sizes.append(len(batch.entries))
        super().write(batch)


def write_of(snapshot: int, count: int, *, wipes: bool = False) -> Write:
    """Return the write of a snapshot that changes some keys of one shard."""
    changes = Changes.of(
        Change(snapshot * 100 + number, 7, b"k%02d" % number, b"%d" % snapshot)
        for number in range(count)
    )
    state = ShardState(snapshot, {"app-a": snapshot * 100 + count}, 5)
    part = ShardWrite(SHARD, state, {NAME: changes}, wipes=wipes, lists_changes=True)
    return Write([part], CopyState("layout", {}, make_record(snapshot)))


def copy_with_a_snapshot() -> tuple[LocalCopy, NotedDatabase]:
    database = NotedDatabase()
    copy = LocalCopy(LAYOUT, database, written_at_once=10)
    copy.carry_out(write_of(1, 3), 0)
    database.sizes.clear()
    return copy, database


def values(database: MemoryDatabase) -> set[bytes]:
    prefix = entry_prefix(NAME)
    return {value[-1:] for _, value in database.view().scan(prefix, prefix + b"\xff")}


def test_a_small_write_is_one_batch() -> None:
    copy, database = copy_with_a_snapshot()

    copy.carry_out(write_of(2, 5), 0)

    state_and_copy = 2
    assert database.sizes == [2 * 5 + state_and_copy]


def test_a_large_write_goes_in_parts_and_ends_with_the_new_state() -> None:
    copy, database = copy_with_a_snapshot()

    copy.carry_out(write_of(2, 12), 0)

    assert database.sizes == [1, 10, 10, 4, 2]
    assert values(database) == {b"2"}
    assert len([*database.view().scan(*CHANGED_KEYS)]) == 3 + 12
    saved = copy.saved()
    assert saved.shards == {SHARD: ShardState(2, {"app-a": 212}, 5)}
    assert saved.copy is not None
    assert saved.copy.record == make_record(2)


@pytest.mark.parametrize("most", range(1, 5))
def test_a_shard_is_not_whole_while_a_part_is_missing(most: int) -> None:
    copy, database = copy_with_a_snapshot()
    database.most = most

    with pytest.raises(FullError):
        copy.carry_out(write_of(2, 12), 0)

    saved = copy.saved()
    assert saved.shards == {SHARD: ShardState(None, {"app-a": 103}, 5)}
    assert saved.copy is not None
    assert saved.copy.record == make_record(1)


def test_a_write_that_wipes_is_one_batch() -> None:
    copy, database = copy_with_a_snapshot()

    copy.carry_out(write_of(2, 12, wipes=True), 0)

    assert len(database.sizes) == 1
    assert values(database) == {b"2"}
