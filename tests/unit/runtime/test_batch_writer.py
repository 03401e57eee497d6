"""Writing a batch: once, in order, with markers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import (
    BrokerUnavailableError,
    CheckpointError,
    LeadershipLostError,
    ProducerFencedError,
    UnstableOffsetsError,
)
from headrace.brokers.log import OffsetAndMetadata, RawRecord, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.records import ConsumerRecord, Headers, RecordMetadata
from headrace.runtime.exchange.packing import TaskOutput, TaskReport
from headrace.runtime.output.batch_writer import BatchWriter, PartitionResult, batch_result
from headrace.runtime.program import Program
from headrace.runtime.run_files import BatchResult
from tests.unit.runtime.writing import LARGE, Writing, lead, outputs, packed


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path)


def test_a_batch_is_written_with_a_marker_for_each_task(writing: Writing) -> None:
    note = writing.write(outputs(0, b"a", b"b"), outputs(1, b"c"), batch=4)

    assert writing.values() == [b"a", b"b", b"c"]
    assert writing.markers() == {0: 5, 1: 5}
    assert note.written == {"out": 3}
    assert [report.task for report in note.reports] == ["0_0", "0_1"]


def test_records_keep_everything_they_have(writing: Writing) -> None:
    headers = Headers([("trace", b"1"), ("trace", None)])

    writing.write(outputs(0, b"a", headers=headers))

    assert writing.records() == [ConsumerRecord("out", 0, 0, 1, b"key", b"a", headers)]


def test_the_output_of_a_task_keeps_its_order_however_it_arrives(writing: Writing) -> None:
    writing.write(
        outputs(0, b"c", sequence=3),
        outputs(1, b"other"),
        outputs(0, b"a", sequence=1),
        outputs(0, b"b", sequence=2),
    )

    assert [value for value in writing.values() if value != b"other"] == [b"a", b"b", b"c"]


def test_a_batch_without_output_opens_no_transaction(writing: Writing) -> None:
    note = writing.write(TaskOutput(0, 1, TaskReport("0_0", processed=3), []))

    assert writing.markers() == {}
    assert note.reports == [TaskReport("0_0", processed=3)]
    with writing.log.transaction("app-0"):
        pass  # no other producer had the id


def test_a_replay_writes_nothing(writing: Writing) -> None:
    writing.write(outputs(0, b"a"), outputs(1, b"b"))

    note = writing.write(outputs(0, b"a"), outputs(1, b"b"))

    assert writing.values() == [b"a", b"b"]
    assert note.written == {}
    assert len(note.reports) == 2


def test_a_replay_writes_what_is_missing(writing: Writing) -> None:
    writing.write(outputs(0, b"a"))

    note = writing.write(outputs(0, b"a"), outputs(1, b"b"))

    assert writing.values() == [b"a", b"b"]
    assert note.written == {"out": 1}
    assert writing.markers() == {0: 1, 1: 1}


def test_the_next_batch_is_written_after_the_last(writing: Writing) -> None:
    for batch, value in enumerate((b"a", b"b", b"c")):
        writing.write(outputs(0, value), batch=batch, digest=f"batch {batch}")

    assert writing.values() == [b"a", b"b", b"c"]
    assert writing.markers() == {0: 3}


def test_a_task_that_wrote_nothing_in_some_batches_continues(writing: Writing) -> None:
    writing.write(outputs(0, b"a"), batch=0)

    writing.write(outputs(0, b"b"), batch=7, digest="later")

    assert writing.values() == [b"a", b"b"]
    assert writing.markers() == {0: 8}


def test_markers_of_another_checkpoint_do_not_count(writing: Writing) -> None:
    writing.write(outputs(0, b"a"), batch=5, query="an earlier life")

    writing.write(outputs(0, b"b"), batch=0)

    assert writing.values() == [b"a", b"b"]
    assert writing.markers() == {0: 1}


@pytest.mark.parametrize(("batch", "digest"), [(2, "other offsets"), (1, "digest"), (0, "digest")])
def test_an_older_copy_of_a_checkpoint_is_refused(
    writing: Writing, batch: int, digest: str
) -> None:
    writing.write(outputs(0, b"a"), batch=2)

    with pytest.raises(CheckpointError) as caught:
        writing.write(outputs(0, b"b"), outputs(1, b"c"), batch=batch, digest=digest)

    assert str(caught.value) == (
        f"Batch {batch} of task 0 was written from other offsets than this checkpoint has: it is "
        "an older copy. Restore the newest one, or start again with `headrace reset app`."
    )
    assert writing.values() == [b"a"]


def test_at_least_once_writes_again_and_leaves_no_markers(tmp_path: Path) -> None:
    writing = Writing(tmp_path, processing_guarantee="at_least_once")

    for _ in range(2):
        note = writing.write(outputs(0, b"a"))

    assert writing.values() == [b"a", b"a"]
    assert note.written == {"out": 1}
    assert writing.markers() == {}


def test_at_least_once_some_records_are_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.output.batch_writer._WRITTEN_AT_ONCE", 1)
    writing = Writing(tmp_path, processing_guarantee="at_least_once")
    together: list[int] = []
    append = writing.log.append

    def counted(records: list[RawRecord]) -> list[RecordMetadata]:
        together.append(len(records))
        return append(records)

    monkeypatch.setattr(writing.log, "append", counted)

    note = writing.write(
        outputs(0, b"a", b"b"), outputs(0, b"c", sequence=2), outputs(1, b"d", b"e")
    )

    assert together == [2, 1, 2]
    assert writing.values() == [b"a", b"b", b"c", b"d", b"e"]
    assert note.written == {"out": 5}


def test_at_least_once_a_former_leader_writes_only_the_chunk_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.output.batch_writer._WRITTEN_AT_ONCE", 1)
    writing = Writing(tmp_path, processing_guarantee="at_least_once")
    append = writing.log.append

    def taken_over(records: list[RawRecord]) -> list[RecordMetadata]:
        lead(writing, 1)
        return append(records)

    monkeypatch.setattr(writing.log, "append", taken_over)

    with pytest.raises(LeadershipLostError):
        writing.write(outputs(0, b"a", b"b"), outputs(0, b"c", b"d", sequence=2))

    assert writing.values() == [b"a", b"b"]


class Failing:
    """A log whose transactions fail, as a broker's may."""

    def __init__(self, log: Broker, error: Exception) -> None:
        self._log = log
        self._error = error
        self.opened = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def transaction(self, *_: object, **__: object) -> Any:
        self.opened += 1
        raise self._error


@pytest.mark.parametrize(
    "error", [BrokerUnavailableError("No answer."), ProducerFencedError("app-0")]
)
def test_a_broker_error_is_left_to_spark(writing: Writing, error: Exception) -> None:
    log: Any = Failing(writing.log, error)
    writer = BatchWriter(writing.program, log, partition=0, batch=0, query="query")

    with pytest.raises(type(error)):
        writer.write(packed(outputs(0, b"a")))

    assert log.opened == 1
    assert writing.values() == []


class HoldingBack:
    """A log that tells no markers, as a broker that has lost the end of a transaction."""

    def __init__(self, log: Broker) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def committed_offsets(self, group: str, *names: Any) -> Any:
        if group == "app-markers":
            raise UnstableOffsetsError("Held back.")
        return self._log.committed_offsets(group, *names)


def test_a_new_batch_is_written_although_the_end_of_the_one_before_was_lost(
    writing: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    writing.write(outputs(0, b"a"))
    log: Any = HoldingBack(writing.log)
    writer = BatchWriter(writing.program, log, partition=0, batch=1, query="query")

    note = writer.write(packed(outputs(0, b"b"), is_new=True))

    assert note.written == {"out": 1}
    assert writing.values() == [b"a", b"b"]
    assert writing.markers() == {0: 2}
    assert "Batch 1 is written without checking its markers: Held back." in caplog.text


@pytest.mark.parametrize(("attempt", "is_new"), [(1, True), (0, False)])
def test_a_batch_that_may_be_written_waits_for_its_markers(
    writing: Writing, attempt: int, is_new: bool
) -> None:
    log: Any = HoldingBack(writing.log)
    writer = BatchWriter(writing.program, log, partition=0, batch=1, query="query", attempt=attempt)

    with pytest.raises(UnstableOffsetsError):
        writer.write(packed(outputs(0, b"b"), is_new=is_new))

    assert writing.values() == []


def test_after_a_refused_record_markers_are_waited_for(tmp_path: Path) -> None:
    writing = Writing(tmp_path, production_exception_handler="continue")
    log: Any = HoldingBack(writing.log)
    writer = BatchWriter(writing.program, log, partition=0, batch=1, query="query")

    with pytest.raises(UnstableOffsetsError):
        writer.write(packed(outputs(0, b"b", LARGE, topic="small"), is_new=True))

    assert writing.values("small") == []


def with_sentinel(writing: Writing) -> Program:
    """Commit the sentinel as a start does, and return the program that knows of it."""
    lead(writing, 0)
    sentinel = TopicPartition("app-leader", 0)
    writing.log.commit_offsets("app-markers", {sentinel: OffsetAndMetadata(0)})
    return replace(
        writing.program, marker_topic_id=writing.log.topic_ids(["app-markers"])["app-markers"]
    )


def delete_group(log: Broker) -> None:
    log.delete_group("app-markers")


def make_topic_again(log: Broker) -> None:
    log.delete_topic("app-markers")
    log.create_topic("app-markers", partitions=2)


LOSSES = pytest.mark.parametrize("lose", [delete_group, make_topic_again])


@LOSSES
@pytest.mark.parametrize(("attempt", "is_new"), [(1, True), (0, False)])
def test_a_batch_that_may_be_written_is_refused_if_its_markers_are_gone(
    writing: Writing, lose: Callable[[Broker], None], attempt: int, is_new: bool
) -> None:
    program = with_sentinel(writing)
    writing.write(outputs(0, b"a"))
    lose(writing.log)
    writer = BatchWriter(program, writing.log, partition=0, batch=0, query="query", attempt=attempt)

    with pytest.raises(CheckpointError) as caught:
        writer.write(packed(outputs(0, b"a"), is_new=is_new))

    assert str(caught.value) == (
        "Batch 0 cannot be retried, because its markers are gone: the topic or the group "
        "'app-markers' was deleted, or the offsets of the group expired "
        "(`offsets.retention.minutes`). Start again with `headrace reset app`."
    )
    assert writing.values() == [b"a"]


@LOSSES
def test_a_new_batch_needs_no_markers(writing: Writing, lose: Callable[[Broker], None]) -> None:
    program = with_sentinel(writing)
    lose(writing.log)
    writer = BatchWriter(program, writing.log, partition=0, batch=1, query="query")

    writer.write(packed(outputs(0, b"b"), is_new=True))

    assert writing.values() == [b"b"]


def test_a_batch_that_was_not_written_is_retried(writing: Writing) -> None:
    program = with_sentinel(writing)
    writer = BatchWriter(program, writing.log, partition=0, batch=0, query="query", attempt=1)

    writer.write(packed(outputs(0, b"a")))

    assert writing.values() == [b"a"]


def test_a_marker_names_its_query_and_batch(writing: Writing) -> None:
    writing.write(outputs(0, b"a"), batch=3, query="id of the query", digest="of the batch")

    [marker] = writing.log.committed_offsets("app-markers").values()
    assert msgspec.json.decode(marker.metadata) == {
        "query": "id of the query",
        "digest": "of the batch",
    }


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_replaced_leader_writes_nothing_and_opens_no_producer(
    tmp_path: Path, guarantee: Any
) -> None:
    writing = Writing(tmp_path, processing_guarantee=guarantee)
    lead(writing, 1)
    log: Any = Failing(writing.log, AssertionError("opened"))
    writer = BatchWriter(writing.program, log, partition=0, batch=0, query="query")

    with pytest.raises(LeadershipLostError):
        writer.write(packed(outputs(0, b"a")))

    assert log.opened == 0
    assert writing.values() == []


class Late:
    """A log on which another process takes over while a producer is opened."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writing.log, name)

    def transaction(self, *given: Any, **named: Any) -> Any:
        lead(self._writing, 1)
        return self._writing.log.transaction(*given, **named)


def test_a_leader_replaced_while_its_producer_opens_writes_nothing(writing: Writing) -> None:
    log: Any = Late(writing)
    writer = BatchWriter(writing.program, log, partition=0, batch=0, query="query")

    with pytest.raises(LeadershipLostError):
        writer.write(packed(outputs(0, b"a")))

    assert writing.values() == []
    assert writing.markers() == {}


def test_a_leader_resumes_from_the_markers_of_its_predecessor(writing: Writing) -> None:
    writing.write(outputs(0, b"a"), batch=0)
    lead(writing, 1)
    writing.program = replace(writing.program, leader_epoch=1)

    writing.write(outputs(0, b"a"), outputs(1, b"b"), batch=0)

    assert writing.values() == [b"a", b"b"]


def test_foreign_offsets_in_the_marker_group_are_refused(writing: Writing) -> None:
    name = TopicPartition("app-markers", 0)
    writing.log.commit_offsets("app-markers", {name: OffsetAndMetadata(1, "not ours")})

    with pytest.raises(CheckpointError, match=r"'app-markers' has .*`headrace reset app`"):
        writing.write(outputs(0, b"a"))

    assert writing.values() == []


def test_the_transaction_receives_the_bytes_to_write(writing: Writing) -> None:
    sizes: list[int] = []

    class Sized:
        def __getattr__(self, name: str) -> Any:
            return getattr(writing.log, name)

        def transaction(self, *given: Any, size: int) -> Any:
            sizes.append(size)
            return writing.log.transaction(*given, size=size)

    log: Any = Sized()
    writer = BatchWriter(writing.program, log, partition=0, batch=0, query="query")

    writer.write(packed(outputs(0, b"x" * 70_000), outputs(1, b"y" * 30_000)))

    assert 100_000 < sizes[0] < 101_000


def test_a_result_counts_the_transactions_and_the_latencies_of_the_topics(
    tmp_path: Path,
) -> None:
    writing = Writing(tmp_path, production_exception_handler="continue")

    first = writing.write(outputs(0, b"a"), outputs(1, LARGE, topic="small"))
    replay = writing.write(outputs(0, b"a"), outputs(1, LARGE, topic="small"))

    assert first.transactions == {"abort": 1, "commit": 1}
    assert first.commit_seconds is not None
    assert {topic: each.total for topic, each in first.latencies.items()} == {"out": 1}
    assert (replay.transactions, replay.latencies, replay.commit_seconds) == ({}, {}, None)


def test_the_longest_commit_of_a_batch_counts() -> None:
    results = [PartitionResult(commit_seconds=each) for each in (0.1, 2.0, None)]

    totals = batch_result(BatchResult(), 0, results).totals

    assert (totals.commit_seconds.total, totals.commit_seconds.sum) == (1, 2.0)
