"""Progress: which offsets the planner commits and when, and which records it deletes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import pytest

from headrace import BrokerUnavailableError, StreamsBuilder
from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.batch_log import MemoryBatchLog
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.planning.input_sync import InputSync
from headrace.runtime.planning.progress import Progress
from tests.unit.runtime.planning import Build, FakeTime, copying, execution_plan, name

IN_0, IN_1 = name("in"), name("in", 1)
SENTINEL = name("app-leader")


class Groups:
    """The offsets of consumer groups, and requests to delete records; without a broker."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.commits: list[str] = []
        """The groups of all commits, in their order."""
        self.lookups: list[str] = []
        """The groups whose offsets were read, in their order."""
        self.deleted: list[dict[TopicPartition, int]] = []
        self.is_available = True

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self.commits.append(group)
        if not self.is_available:
            raise BrokerUnavailableError("No answer.")
        self.offsets.setdefault(group, {}).update(offsets)

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self.lookups.append(group)
        assert partitions is None
        return dict(self.offsets.get(group, {}))

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.deleted.append(dict(offsets))


class Processed:
    """An `InputSync` that returns the processed offsets that a test has set."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int | None] | None = None
        """None: all records that are read are processed."""

    def processed_offsets(self, done: BatchBoundary) -> dict[TopicPartition, int | None]:
        if self.offsets is not None:
            return self.offsets
        return {
            TopicPartition(topic, partition): offset
            for topic, offsets in done.offsets.items()
            for partition, offset in enumerate(offsets)
        }


class Committing:
    """The progress of one application, with fakes of everything that it uses."""

    def __init__(self, build: Build = copying) -> None:
        self.groups = Groups()
        self.processed = Processed()
        self.batch_log = MemoryBatchLog("query")
        self.plan = execution_plan(build)
        self.progress = Progress(
            self.plan,
            cast("TopicLog", self.groups),
            Checkpoint("app", Path("unused"), self.batch_log),
            cast("InputSync", self.processed),
            leader_epoch=7,
        )

    def commit(self, offsets: dict[str, list[int]], clock: int = 1_000) -> None:
        """Commit the end of a batch."""
        self.progress.commit(BatchBoundary(offsets, clock))

    def commit_before_batches(self) -> None:
        """Commit as the planner does before the first batch."""
        self.commit({"in": [0, 0]}, clock=0)

    def commit_processed(self, *offsets: int | None) -> None:
        """Commit the end of a batch whose topic ``in`` is processed up to these offsets."""
        self.processed.offsets = {name("in", p): offset for p, offset in enumerate(offsets)}
        self.commit({"in": [9] * len(offsets)})

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The offsets that the group of the application has."""
        offsets = self.groups.offsets.get("app", {})
        return {partition: committed.offset for partition, committed in offsets.items()}

    @property
    def commits(self) -> int:
        """Return how often offsets were committed to the group of the application."""
        return self.groups.commits.count("app")


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    fake.advance(1_000.0)  # a machine that runs for longer than any interval
    monkeypatch.setattr("headrace.runtime.planning.progress.time", fake)
    return fake


@pytest.fixture
def committing(fake_time: FakeTime) -> Committing:
    return Committing()


def test_nothing_is_committed_before_the_first_batch(committing: Committing) -> None:
    committing.commit_before_batches()

    assert committing.commits == 0


def test_the_end_of_a_batch_is_committed_to_the_group_of_the_application(
    committing: Committing,
) -> None:
    committing.commit({"in": [3, 0]})

    assert committing.groups.offsets["app"] == {
        IN_0: OffsetAndMetadata(3, OWN_OFFSETS),
        IN_1: OffsetAndMetadata(0, OWN_OFFSETS),
    }


def test_an_application_without_partitions_commits_no_offsets(
    committing: Committing, fake_time: FakeTime
) -> None:
    committing.commit({})
    fake_time.advance(61.0)
    committing.commit({})

    assert committing.commits == 0


def test_the_same_offsets_are_committed_again_after_a_minute(
    committing: Committing, fake_time: FakeTime
) -> None:
    committing.commit({"in": [3]})
    del committing.groups.offsets["app"]
    fake_time.advance(60.0)
    committing.commit({"in": [3]})
    early = committing.committed
    fake_time.advance(0.1)
    committing.commit({"in": [3]})

    assert early == {}
    assert committing.committed == {IN_0: 3}
    assert committing.commits == 2


def test_new_offsets_are_committed_at_once_and_begin_another_minute(
    committing: Committing, fake_time: FakeTime
) -> None:
    committing.commit({"in": [3]})
    fake_time.advance(40.0)
    committing.commit({"in": [4]})
    fake_time.advance(40.0)
    committing.commit({"in": [4]})

    assert committing.committed == {IN_0: 4}
    assert committing.commits == 2


def test_a_commit_that_fails_is_repeated(committing: Committing) -> None:
    committing.commit_before_batches()  # the sentinel is committed
    committing.groups.is_available = False
    with pytest.raises(BrokerUnavailableError):
        committing.commit({"in": [3]})

    committing.groups.is_available = True
    committing.commit({"in": [3]})

    assert committing.committed == {IN_0: 3}


def test_a_partition_whose_progress_is_unknown_keeps_the_offset_of_this_run(
    committing: Committing,
) -> None:
    committing.commit_processed(3, 3)
    committing.commit_processed(None, 5)

    assert committing.committed == {IN_0: 3, IN_1: 5}


def test_a_partition_whose_progress_is_unknown_keeps_the_offset_from_before_the_start(
    committing: Committing,
) -> None:
    before = {IN_0: OffsetAndMetadata(2, OWN_OFFSETS)}
    committing.groups.offsets["app"] = dict(before)

    committing.commit_processed(None, 4)
    # Kafka has deleted the offset; it is known since the start.
    del committing.groups.offsets["app"]
    committing.commit_processed(None, 5)

    assert committing.groups.offsets["app"] == {**before, IN_1: OffsetAndMetadata(5, OWN_OFFSETS)}
    assert committing.groups.lookups == ["app"], "one request is enough"


def test_an_offset_of_this_run_wins_over_one_from_before_the_start(committing: Committing) -> None:
    committing.groups.offsets["app"] = {
        each: OffsetAndMetadata(2, OWN_OFFSETS) for each in (IN_0, IN_1)
    }
    committing.commit_processed(None, 4)
    committing.commit_processed(6, None)
    committing.commit_processed(None, None)

    assert committing.committed == {IN_0: 6, IN_1: 4}


def test_a_partition_whose_progress_is_unknown_gets_no_offset_if_it_has_none(
    committing: Committing,
) -> None:
    committing.commit_processed(None, 4)

    assert committing.committed == {IN_1: 4}


def test_offsets_that_another_program_has_committed_are_not_kept(committing: Committing) -> None:
    committing.groups.offsets["app"] = {IN_0: OffsetAndMetadata(2, "by hand")}

    committing.commit_processed(None)

    assert committing.commits == 0


def test_the_group_is_not_read_while_all_progress_is_known(committing: Committing) -> None:
    committing.commit_processed(3, 3)

    assert committing.groups.lookups == []


def test_the_offset_of_a_partition_that_stale_metadata_omits_once_is_not_lost(
    committing: Committing,
) -> None:
    committing.groups.offsets["app"] = {IN_1: OffsetAndMetadata(0, OWN_OFFSETS)}
    committing.commit_processed(1, None)
    committing.commit_processed(2, 1)
    committing.commit_processed(3)
    committing.commit_processed(4, None)

    assert committing.committed == {IN_0: 4, IN_1: 1}


def test_the_sentinel_is_committed_at_the_start_and_every_minute_even_without_batches(
    committing: Committing, fake_time: FakeTime
) -> None:
    commits = []
    for seconds in (0.0, 60.0, 0.1, 60.0, 0.1):
        fake_time.advance(seconds)
        committing.commit_before_batches()
        commits.append(committing.groups.commits.count("app-markers"))

    assert commits == [1, 1, 2, 2, 3]
    assert committing.groups.offsets == {
        "app-markers": {SENTINEL: OffsetAndMetadata(7, OWN_OFFSETS)}
    }


def test_the_sentinel_is_not_committed_while_a_batch_is_unfinished(
    committing: Committing, fake_time: FakeTime
) -> None:
    committing.batch_log.plan(0, BatchBoundary({"in": [3]}, 1_000))
    committing.commit_before_batches()
    unfinished = dict(committing.groups.offsets)

    committing.batch_log.commit(0)
    fake_time.advance(61.0)
    committing.commit_before_batches()

    assert unfinished == {}
    assert committing.groups.offsets.keys() == {"app-markers"}


def with_loop(builder: StreamsBuilder) -> None:
    customers = builder.table("customers", key=str, value=str)
    orders = builder.table("orders", key=str, value=str)
    orders.join(customers, lambda a, b: a + b, foreign_key=lambda value: value, value=str)


@pytest.fixture
def looping(fake_time: FakeTime) -> Committing:
    return Committing(with_loop)


def commit_loop(looping: Committing, offset: int) -> TopicPartition:
    """Commit a batch that ends at an offset in all topics; return the partition of the loop."""
    [loop] = looping.plan.loops
    looping.commit({"customers": [offset], "orders": [offset], loop: [offset]})
    return name(loop)


def test_processed_records_of_a_loop_topic_are_deleted_one_batch_later(
    looping: Committing, fake_time: FakeTime
) -> None:
    fake_time.advance(31.0)
    commit_loop(looping, 2)
    after_one = list(looping.groups.deleted)
    fake_time.advance(31.0)
    loop = commit_loop(looping, 5)

    assert after_one == [], "Spark may replay the last batch"
    assert looping.groups.deleted == [{loop: 2}]


def test_records_of_loop_topics_are_deleted_every_thirty_seconds(
    looping: Committing, fake_time: FakeTime
) -> None:
    deletions = []
    for batch, seconds in enumerate((0.0, 30.0, 0.1, 30.0, 0.1)):
        fake_time.advance(seconds)
        loop = commit_loop(looping, batch)
        deletions.append([deleted[loop] for deleted in looping.groups.deleted])

    assert deletions == [[], [], [1], [1], [1, 3]]


def test_no_records_are_deleted_while_no_batch_ends(
    looping: Committing, fake_time: FakeTime
) -> None:
    for _ in range(3):
        fake_time.advance(31.0)
        commit_loop(looping, 2)

    assert looping.groups.deleted == []


def test_records_of_other_topics_are_never_deleted(
    committing: Committing, fake_time: FakeTime
) -> None:
    for offset in range(3):
        fake_time.advance(31.0)
        committing.commit({"in": [offset]})

    assert committing.groups.deleted == []


def test_buffered_records_of_a_loop_topic_are_kept(
    looping: Committing, fake_time: FakeTime
) -> None:
    [loop] = looping.plan.loops
    for processed in (3, 7):
        fake_time.advance(31.0)
        looping.processed.offsets = {name(loop): processed, name("orders"): None}
        commit_loop(looping, 9)

    assert looping.groups.deleted == [{name(loop): 3}]
