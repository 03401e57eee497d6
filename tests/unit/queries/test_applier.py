"""The applier alone, event by event, where the model does not look closely."""

from __future__ import annotations

import pytest

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.actions import (
    Action,
    AskEnds,
    AskTopicIds,
    Change,
    Changes,
    Read,
    SavedCopy,
    ShardState,
    Show,
    ThrowAway,
    Write,
)
from headrace.queries.copy.applier import Applier
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.layout import CopyLayout, Shard, ShardGroup, StoreLayout
from headrace.runtime.snapshots import SnapshotRecord, digest_topic_ids
from tests.unit.queries.snapshot_records import TOPIC_IDS, make_record

LAYOUT = CopyLayout("layout", (ShardGroup("0", (StoreLayout("app-a"),)),))
TOPICS = digest_topic_ids({"app-a": TOPIC_IDS["app-a"]})
NAME, SHARD = TopicPartition("app-a", 0), Shard("0", 0)


def record(snapshot: int, end: int, count: int = 0, **fields: object) -> SnapshotRecord:
    changes = {"app-a": {0: count}}
    return make_record(snapshot, topics=TOPICS, ends={"app-a": [end]}, changes=changes, **fields)


class Instance:
    """An applier whose questions are answered at once."""

    def __init__(
        self,
        limits: ApplierLimits | None = None,
        end: int = 0,
        adopted: ShardState | None = None,
    ) -> None:
        self.applier = Applier(LAYOUT, "app-snapshots", SavedCopy(), 0, limits)
        if adopted is not None:
            self.applier.adopt(SHARD, adopted)
        self.applier.keep([SHARD])
        self.end = end
        self.ids = TOPIC_IDS
        self.later_ids: dict[str, str] | None = None
        """The ids of the topics from the next question for ends on."""
        self.done: list[Action] = []
        self._reading = 0
        self.settle()

    def settle(self) -> None:
        while actions := self.applier.take_actions():
            self.done += actions
            for action in actions:
                match action:
                    case AskTopicIds(request):
                        self.applier.topic_ids(request, self.ids)
                    case AskEnds(request):
                        self.ids = self.later_ids or self.ids
                        self.applier.committed_ends(request, {NAME: self.end})
                    case Read(reading):
                        self._reading = reading

    def read(self, *offsets: int, value: bytes = b"v") -> None:
        self.give(Changes.of(Change(offset, 0, b"k%d" % offset, value) for offset in offsets))

    def give(self, changes: Changes) -> None:
        self.applier.records(NAME, self._reading, changes)
        self.settle()

    def reach(self, offset: int) -> None:
        self.applier.end_of_partition(NAME, self._reading, offset)
        self.settle()

    def snapshot(self, *records: SnapshotRecord) -> None:
        for each in records:
            self.applier.snapshot(each)
        self.applier.end_of_snapshots()
        self.settle()

    def tick(self, now: int) -> None:
        self.applier.tick(now)
        self.settle()

    def shown(self) -> list[int]:
        return [each.record.snapshot for each in self.done if isinstance(each, Show)]


def test_a_copy_joins_an_idle_application_behind_whose_ends_only_a_marker_is() -> None:
    instance = Instance(end=3)
    instance.read(0, 1)
    instance.snapshot(record(7, end=2))
    instance.reach(3)

    assert instance.shown() == [7]
    assert instance.applier.is_ready()


def test_a_snapshot_whose_records_are_missing_waits_two_seconds() -> None:
    instance = Instance()
    instance.snapshot(record(0, end=0))
    instance.snapshot(record(1, end=1, count=1))

    instance.tick(1_999)
    assert instance.applier._copy.head == record(0, end=0)
    instance.tick(2_000)
    assert instance.applier._copy.head == record(1, end=1, count=1)
    assert instance.shown() == [0]


def test_a_shard_is_ready_while_it_is_at_most_three_snapshots_behind_or_for_two_seconds() -> None:
    instance = Instance()
    instance.snapshot(record(0, end=0))
    for number in range(1, 4):
        instance.snapshot(record(number, end=9, count=1))
    instance.tick(5_000)
    assert instance.applier.is_ready()

    instance.snapshot(record(4, end=9, count=1))
    instance.tick(7_000)
    assert instance.applier.is_ready()
    instance.tick(7_001)
    assert not instance.applier.is_ready()


def test_a_changelog_that_ends_before_the_snapshot_for_ten_seconds_has_lost_records() -> None:
    instance = Instance()
    instance.snapshot(record(5, end=4))
    instance.reach(2)
    instance.tick(9_999)
    assert instance.applier.problem_of(SHARD) is None

    instance.tick(10_000)
    assert "has lost records" in (instance.applier.problem_of(SHARD) or "")
    instance.end = 4
    instance.reach(4)
    assert instance.applier.problem_of(SHARD) is None
    assert instance.shown() == [5]


def test_a_restore_that_takes_longer_than_deletions_are_kept_says_so() -> None:
    instance = Instance(ApplierLimits(delete_retention_ms=1_000))
    instance.tick(600)
    instance.snapshot(record(5, end=0, at=600))

    assert instance.shown() == []
    assert "Raise their `delete.retention.ms`" in (instance.applier.problem_of(SHARD) or "")
    instance.reach(0)
    assert instance.shown() == [5]
    assert instance.applier.problem_of(SHARD) is None


@pytest.mark.parametrize(("fresh_at", "is_read_again"), [(101, False), (100, True), (900, False)])
def test_a_shard_of_another_instance_is_as_old_as_it_was_there(
    fresh_at: int, is_read_again: bool
) -> None:
    sent = ShardState(5, {"app-a": 2}, fresh_at)
    instance = Instance(ApplierLimits(delete_retention_ms=1_000), adopted=sent.taken_over(600))
    instance.tick(600)

    instance.snapshot(record(5, end=2, at=600))
    instance.reach(2)

    parts = [part for write in instance.done if isinstance(write, Write) for part in write.parts]
    assert any(part.wipes for part in parts) == is_read_again
    assert instance.shown() == [5]


def test_no_shard_joins_by_the_ends_of_a_topic_that_was_created_again() -> None:
    """A crash may have left entries of a later snapshot, which the ends of its topic would show."""
    marked = ShardState(None, {"app-a": 2}, 0)
    instance = Instance(end=1, adopted=marked)
    instance.later_ids = TOPIC_IDS | {"app-a": "another"}

    instance.snapshot(record(5, end=2))
    instance.reach(2)

    assert instance.shown() == []
    assert any(isinstance(each, ThrowAway) for each in instance.done)


def test_no_copy_joins_at_an_old_record_if_a_deletion_behind_it_may_be_gone() -> None:
    instance = Instance(ApplierLimits(delete_retention_ms=1_000), end=4)
    instance.tick(400)
    instance.snapshot(record(5, end=2, at=-100))
    instance.reach(4)
    assert instance.shown() == []

    instance.snapshot(record(5, end=2, at=400))
    assert instance.shown() == [5]


def test_more_than_the_limit_is_written_under_the_mark_and_shown_later() -> None:
    instance = Instance(ApplierLimits(waiting_bytes=100))
    instance.snapshot(record(0, end=0))
    instance.read(0, 1, value=b"v" * 60)
    instance.reach(3)

    parts = [part for write in instance.done if isinstance(write, Write) for part in write.parts]
    assert parts[-1].state is not None
    assert parts[-1].state.snapshot is None
    assert parts[-1].state.offsets == {"app-a": 2}
    instance.snapshot(record(1, end=1, count=1))
    assert instance.shown() == [0]
    instance.snapshot(record(2, end=3, count=1))
    assert instance.shown() == [0, 2]


def test_a_record_of_another_program_is_a_problem_and_throws_the_copy_away() -> None:
    instance = Instance()
    instance.snapshot(record(0, end=0))

    instance.snapshot(record(1, end=0, layout="other"))

    assert any(isinstance(each, ThrowAway) for each in instance.done)
    instance.snapshot(record(1, end=0, layout="other"))
    assert "Start the instance with the program" in (instance.applier.problem or "")
    assert not instance.applier.is_ready()


def test_a_record_that_cannot_be_read_makes_the_instance_not_ready() -> None:
    instance = Instance()
    instance.snapshot(record(0, end=0))

    instance.applier.refuse_snapshot("has format 2")

    assert not instance.applier.is_ready()
    instance.snapshot(record(1, end=0))
    assert instance.applier.is_ready()


def test_another_topic_id_throws_the_copy_away_before_anything_of_it_is_shown() -> None:
    instance = Instance()
    instance.snapshot(record(0, end=0))
    instance.ids = TOPIC_IDS | {"app-a": "another"}

    instance.read(0)
    instance.snapshot(record(1, end=1, count=1))

    assert any(isinstance(each, ThrowAway) for each in instance.done)
    assert instance.shown() == [0]


def copies(*keys: bytes) -> Changes:
    """Return records that differ in their keys alone."""
    return Changes.of(Change(offset, 0, key, b"v") for offset, key in enumerate(keys))


@pytest.mark.parametrize(
    ("keys", "exact", "lenient"),
    [
        pytest.param([b"a", b"b", b"c"], [0, 1], [0, 1], id="each once"),
        pytest.param([b"a", b"a", b"b", b"c"], [0], [0, 1], id="one twice"),
        pytest.param([b"a", b"a", b"b"], [0, 1], [0], id="one twice, and another is gone"),
        pytest.param([b"a", b"b", b"c", b"d"], [0], [0], id="one that the snapshot has not"),
    ],
)
def test_with_at_least_once_a_record_that_is_there_twice_counts_once(
    keys: list[bytes], exact: list[int], lenient: list[int]
) -> None:
    found = []
    for limits in (ApplierLimits(), ApplierLimits(has_copies=True)):
        instance = Instance(limits)
        instance.snapshot(record(0, end=0))
        instance.end = 9
        instance.give(copies(*keys))
        instance.snapshot(record(1, end=len(keys), count=3))
        found.append(instance.shown())

    assert found == [exact, lenient]
