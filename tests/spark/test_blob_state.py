"""Blobs in the state of a real Spark query: pipelined, with public calls, of two grouping keys."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming.proto import StateMessage_pb2
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import Row

from headrace import StateStoreError, StreamsConfig
from headrace.runtime.btree.stores import BTreeStores
from headrace.spark.blob_state import SparkBlobs
from headrace.spark.session import open_session
from headrace.state.specs import Stores

# Workers cannot import a test.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Host(StatefulProcessor):
    """Does a test's work once per grouping key and batch; returns its report as JSON."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.data = handle.getMapState("data", "key binary", "value binary")

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803  # Spark's name
    ) -> Iterator[Row]:
        for row in rows:
            yield Row(grouping_key=key[0], report=json.dumps(self.work(row.step, key)))

    def work(self, step: int, key: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Close nothing."""


@pytest.fixture(scope="module")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Return a session of the Java process that all tests share, with an application's settings."""
    folder = tmp_path_factory.mktemp("spark")
    config = StreamsConfig(application_id="blob-state", num_stream_threads=2)
    session: SparkSession = open_session(config, folder / "spark.log")
    session.conf.set("spark.sql.shuffle.partitions", 1)
    return session


def run_query(
    spark: SparkSession,
    folder: Path,
    host: StatefulProcessor,
    steps: int = 1,
    grouping_keys: int = 1,
) -> dict[tuple[int, int], Any]:
    """Run a query of one batch per step; return the reports by grouping key and step."""
    source = folder / "source"
    for step in range(steps):
        rows = [(grouping_key, step) for grouping_key in range(grouping_keys)]
        frame = spark.createDataFrame(rows, "id long, step long").coalesce(1)
        frame.write.mode("append").parquet(str(source))
    query = (
        spark.readStream.schema("id long, step long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .groupBy("id")
        .transformWithState(host, "grouping_key long, report string", "Append", "None")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "reports"))
    )
    query.awaitTermination()
    frame = spark.read.parquet(str(folder / "reports"))
    reports: dict[tuple[int, int], Any] = {}
    for row in frame.collect():
        report = json.loads(row.report)
        reports[row.grouping_key, report["step"]] = report
    return reports


class PipelinedAndPublic(Host):
    def work(self, step: int, key: Any) -> Any:
        pipelined = SparkBlobs(self.data, key, pipelined=True)
        public = SparkBlobs(self.data, key, pipelined=False)
        writer = pipelined if step % 2 == 0 else public
        keys = [b"key-%d" % number for number in range(1500)]
        sizes = (0, 1, 100, 5_000, 70_000, 300_000)
        if step < 2:
            blobs = {
                blob_key: bytes([index % 256]) * sizes[index % (4 if index > 60 else 6)]
                for index, blob_key in enumerate(keys)
                if index % 3 != step
            }
            writer.apply({**blobs, **dict.fromkeys(keys[step::3])})
            return {"step": step}
        read_keys = [*keys, b"none", keys[1], b""]
        pipelined_blobs, public_blobs = pipelined.get_many(read_keys), public.get_many(read_keys)
        return {
            "step": step,
            "same": pipelined_blobs == public_blobs,
            "lengths": [None if blob is None else len(blob) for blob in pipelined_blobs],
            "first_bytes": [blob[0] if blob else None for blob in pipelined_blobs],
        }


def test_pipelined_and_public_calls_write_and_read_the_same_blobs(
    spark: SparkSession, tmp_path: Path
) -> None:
    report = run_query(spark, tmp_path, PipelinedAndPublic(), steps=3)[0, 2]

    sizes = (0, 1, 100, 5_000, 70_000, 300_000)
    lengths = [
        None if index % 3 == 1 else sizes[index % (4 if index > 60 else 6)] for index in range(1500)
    ]
    assert report["same"]
    assert report["lengths"] == [*lengths, None, lengths[1], None]
    assert report["first_bytes"][:1500] == [
        index % 256 if length else None for index, length in enumerate(lengths)
    ]


class LargeReads(Host):
    def work(self, step: int, key: Any) -> Any:
        blobs = SparkBlobs(self.data, key)
        keys = [b"%d" % number for number in range(1200)]
        if step == 0:
            blobs.apply({blob_key: blob_key * 20_000 for blob_key in keys})
            return {"step": step}
        same = blobs.get_many(keys) == [blob_key * 20_000 for blob_key in keys]
        return {"step": step, "same": same}


def test_replies_that_exceed_every_buffer_do_not_block(spark: SparkSession, tmp_path: Path) -> None:
    assert run_query(spark, tmp_path, LargeReads(), steps=2)[0, 1]["same"]


class OtherGroupingKey(Host):
    def work(self, step: int, key: Any) -> Any:
        blobs = SparkBlobs(self.data, key)
        if step == 0:
            blobs.apply({b"own": b"of %d" % key[0]})
            return {"step": step}
        before = blobs.get_many([b"own"])
        others = [
            blobs.for_grouping_key(grouping_key).get_many([b"own", b"none"])
            for grouping_key in range(3)
        ]
        public = SparkBlobs(self.data, key, pipelined=False).for_grouping_key(1).get_many([b"own"])
        after = blobs.get_many([b"own"])
        return {
            "step": step,
            "own": [before[0].decode() if before[0] else None, after == before],
            "others": [other[0].decode() if other[0] else None for other in others],
            "public": public[0].decode() if public[0] else None,
        }


def test_blobs_of_another_grouping_key_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    reports = run_query(spark, tmp_path, OtherGroupingKey(), steps=2, grouping_keys=3)

    for grouping_key in range(3):
        report = reports[grouping_key, 1]
        assert report["own"] == [f"of {grouping_key}", True]
        assert report["others"] == ["of 0", "of 1", "of 2"]
        assert report["public"] == "of 1"


class Interrupted(Host):
    def work(self, step: int, key: Any) -> Any:
        blobs = SparkBlobs(self.data, key)
        blobs.apply({b"%d" % number: b"x%d" % number for number in range(900)})

        class Sequence(list[bytes]):
            def __iter__(self) -> Iterator[bytes]:
                for number in range(900):
                    if number == 700:
                        raise ValueError("half-way")
                    yield b"%d" % number

        raised = ""
        try:
            blobs.get_many(Sequence())
        except ValueError as error:
            raised = str(error)
        after = blobs.get_many([b"5", b"6", b"none"])
        return {"step": step, "raised": raised, "after": [b and b.decode() for b in after]}


def test_no_reply_is_left_unread_after_an_error(spark: SparkSession, tmp_path: Path) -> None:
    report = run_query(spark, tmp_path, Interrupted())[0, 0]

    assert report["raised"] == "half-way"
    assert report["after"] == ["x5", "x6", None]


class FakeFile:
    """A connection whose other side sends a few replies and then closes it."""

    def __init__(self, replies: bytes) -> None:
        self.replies = BytesIO(replies)

    def write(self, sent: bytes) -> int:
        return len(sent)

    def flush(self) -> None:
        """Flush nothing: `write` buffers nothing."""

    def read(self, size: int) -> bytes:
        return self.replies.read(size)


def test_after_a_lost_reply_every_request_raises_an_error() -> None:
    client = SimpleNamespace(
        sockfile=FakeFile(pack("!i", 0) * 3), pickleSer=SimpleNamespace(dumps=lambda row: row[0])
    )
    state = SimpleNamespace(
        _stateName="data", _mapStateClient=SimpleNamespace(_stateful_processor_api_client=client)
    )
    blobs = SparkBlobs(state, (0,))
    assert blobs.get_many([b"one"]) == [None]

    with pytest.raises(StateStoreError, match="closed the connection"):
        blobs.get_many([b"two", b"three", b"four"])
    client.sockfile = FakeFile(pack("!i", 0) * 3)
    with pytest.raises(StateStoreError, match="Spark's state was"):
        blobs.get_many([b"five"])


def test_a_refused_request_raises_an_error_after_all_replies_are_read() -> None:
    refused = StateMessage_pb2.StateResponse(statusCode=1, errorMessage="No such state.")
    encoded = refused.SerializeToString()
    replies = pack("!i", 0) + pack("!i", len(encoded)) + encoded + pack("!i", 0)
    client = SimpleNamespace(
        sockfile=FakeFile(replies + pack("!i", 0)),
        pickleSer=SimpleNamespace(dumps=lambda row: row[0]),
    )
    state = SimpleNamespace(
        _stateName="data", _mapStateClient=SimpleNamespace(_stateful_processor_api_client=client)
    )
    blobs = SparkBlobs(state, (0,))

    with pytest.raises(StateStoreError, match="No such state"):
        blobs.apply({b"one": b"1", b"two": None, b"three": b"3"})
    assert blobs.get_many([b"four"]) == [None]


class Counting(Host):
    """Counts keys in a store, over several batches."""

    def work(self, step: int, key: Any) -> Any:
        backend = BTreeStores(SparkBlobs(self.data, key))
        counts = backend.map(Stores.key_value("counts", bytes, bytes))
        keys = [b"%d" % (number * 7919 % 10_000) for number in range(step * 500, step * 500 + 2000)]
        backend.prefetch(keys)
        for record_key in keys:
            count = counts.get(record_key)
            counts.put(record_key, (b"x", 1) if count is None else (b"x", count[1] + 1))
        backend.flush()
        stats = backend.stats()
        return {
            "step": step,
            "entries": len(counts),
            "total": sum(count[1] for _, count in counts.scan()),
            "faults": stats.faults,
        }


def test_a_btree_lasts_from_batch_to_batch(spark: SparkSession, tmp_path: Path) -> None:
    reports = run_query(spark, tmp_path, Counting(), steps=4)

    assert [reports[0, step]["entries"] for step in range(4)] == [2000, 2500, 3000, 3500]
    assert [reports[0, step]["total"] for step in range(4)] == [2000, 4000, 6000, 8000]
