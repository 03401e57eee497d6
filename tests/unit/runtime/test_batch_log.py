"""A batch log has the planned and the committed batches: Spark's files and the one in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from headrace.runtime.batches import BatchBoundary, digest
from headrace.runtime.checkpoint.batch_log import (
    BatchLog,
    MemoryBatchLog,
    digest_of,
    unfinished_batch,
)
from headrace.spark.batch_log import SPARK_FOLDER, SparkBatchLog


class Writer(Protocol):
    """Writes a batch log as its host does."""

    log: BatchLog

    def plan(self, batch: int, end: BatchBoundary) -> None: ...

    def commit(self, batch: int) -> None: ...


class InMemory:
    def __init__(self, _folder: Path) -> None:
        self.log = MemoryBatchLog("query")
        self.plan = self.log.plan
        self.commit = self.log.commit


class InFiles:
    """Writes the files that Spark writes."""

    def __init__(self, folder: Path) -> None:
        self.log = SparkBatchLog("app", folder)
        self._folder = folder / SPARK_FOLDER
        for name in ("offsets", "commits"):
            (self._folder / name).mkdir(parents=True)
        (self._folder / "metadata").write_text('{"id":"query"}')

    def plan(self, batch: int, end: BatchBoundary) -> None:
        line = msgspec.json.encode(end.as_dict())
        (self._folder / "offsets" / str(batch)).write_bytes(b'v1\n{"batchWatermarkMs":0}\n' + line)

    def commit(self, batch: int) -> None:
        (self._folder / "commits" / str(batch)).write_bytes(b'v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture(params=[InMemory, InFiles])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Writer:
    made: Writer = request.param(tmp_path)
    return made


def boundary(offset: int) -> BatchBoundary:
    return BatchBoundary({"in": [offset]}, clock=offset)


def test_a_new_log_has_no_batch(writer: Writer) -> None:
    assert writer.log.query_id() == "query"
    assert writer.log.last_planned() == -1
    assert writer.log.end_of(0) is None
    assert unfinished_batch(writer.log) is None


def test_a_planned_batch_is_unfinished_until_it_is_committed(writer: Writer) -> None:
    writer.plan(0, boundary(3))

    assert (writer.log.last_planned(), unfinished_batch(writer.log)) == (0, 0)

    writer.commit(0)

    assert (writer.log.last_planned(), unfinished_batch(writer.log)) == (0, None)
    writer.log.check()


def test_only_the_last_batch_can_be_unfinished(writer: Writer) -> None:
    for batch in range(12):
        writer.plan(batch, boundary(batch))
        if batch < 11:
            writer.commit(batch)

    assert (writer.log.last_planned(), unfinished_batch(writer.log)) == (11, 11)
    assert [writer.log.is_committed(batch) for batch in (9, 10, 11)] == [True, True, False]


def test_a_batch_ends_where_it_was_planned_to_end(writer: Writer) -> None:
    writer.plan(0, boundary(3))
    writer.plan(1, boundary(8))

    assert [writer.log.end_of(batch) for batch in (0, 1, 2)] == [boundary(3), boundary(8), None]


def test_a_digest_needs_both_boundaries_of_a_batch(writer: Writer) -> None:
    writer.plan(0, boundary(3))
    writer.plan(1, boundary(8))

    assert digest_of(writer.log, 1) == digest(boundary(3), boundary(8))
    assert digest_of(writer.log, 0) is None, "the log does not have the first boundary"
    assert digest_of(writer.log, 2) is None


def test_a_replay_plans_the_last_batch_again(writer: Writer) -> None:
    writer.plan(0, boundary(3))
    writer.plan(0, boundary(3))

    assert writer.log.last_planned() == 0
    assert unfinished_batch(writer.log) == 0
