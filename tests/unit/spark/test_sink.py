"""The sink as Spark calls it: Arrow batches in a task, a commit on the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import CheckpointError, StreamsBuilder
from headrace.brokers.log import TopicPartition
from headrace.runtime.batches import Batch
from headrace.runtime.exchange.packing import Payload, TaskOutput, TaskReport, TopicRecords, pack
from headrace.runtime.output.batch_writer import PartitionResult
from headrace.runtime.planning.startup import prepare
from headrace.runtime.program import make_program
from headrace.runtime.run_files import BatchResult, RunFiles
from headrace.spark.shipping import ShippedProgram
from headrace.spark.sink import PartitionMessage, TopicWriter, local_folder, sink_of
from headrace.spark.worker_errors import WorkerFailure, error_from
from tests.unit.runtime.planning import Planning, create


class Sink:
    """The sink of an application, with the properties that Spark gives its tasks."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        builder = StreamsBuilder()
        builder.stream("in", key=str, value=int).to("out")
        planning = Planning(builder.build(), folder)
        self.log, self.run_files = planning.log, planning.run_files
        create(self.log, **{"in": 1})
        layout, counts = prepare(
            planning.plan, planning.config, self.log, planning.spark_checkpoint, lambda _tasks: 1
        )
        program = make_program(
            planning.plan,
            planning.config,
            layout,
            partition_counts=counts,
            run_directory=str(folder / "run"),
            leader_epoch=0,
        )
        self.shipped = ShippedProgram.of(program)
        self.properties = {"streaming.sql.batchId": "0", "sql.streaming.queryId": "query"}
        monkeypatch.setattr("headrace.spark.sink.TaskContext", self)
        monkeypatch.setattr("headrace.spark.sink.keep_pandas_out", lambda: None)

    def get(self) -> Sink:
        return self

    def partitionId(self) -> int:  # noqa: N802  # Spark's
        return 0

    def attemptNumber(self) -> int:  # noqa: N802  # Spark's
        return 0

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  # Spark's
        return self.properties.get(name)

    def writer(self) -> TopicWriter:
        return sink_of(self.shipped)({}).streamWriter(None, overwrite=False)

    def values(self) -> list[bytes | None]:
        name = TopicPartition("out", 0)
        end = self.log.end_offsets([name])[name]
        return [record.value for some in self.log.read(name, 0, end) for record in some]


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sink:
    return Sink(tmp_path, monkeypatch)


def arrow(*values: bytes, digest: str = "digest") -> pa.RecordBatch:
    blobs = []
    for number, value in enumerate(values):
        written = TopicRecords("out", [0], [1], [b"k"], [value])
        outputs = TaskOutput(0, number, TaskReport("0_0", processed=1), [written])
        blobs.append(pack(Payload(Batch(1, digest), outputs=outputs)))
    return pa.RecordBatch.from_arrays([pa.array(blobs, pa.binary())], names=["blob"])


def test_a_task_writes_what_spark_hands_it(sink: Sink) -> None:
    message = sink.writer().write(iter([arrow(b"a", b"b")]))

    assert sink.values() == [b"a", b"b"]
    assert message.result.written == {"out": 2}


def test_an_attempt_of_the_same_batch_writes_nothing(sink: Sink) -> None:
    for _ in range(2):
        sink.writer().write(iter([arrow(b"a")]))

    assert sink.values() == [b"a"]


def test_an_error_reaches_the_driver_as_what_it_is(sink: Sink) -> None:
    sink.writer().write(iter([arrow(b"a")]))

    with pytest.raises(WorkerFailure) as caught:
        sink.writer().write(iter([arrow(b"b", digest="other offsets")]))

    assert isinstance(error_from(str(caught.value)), CheckpointError)


def test_a_batch_is_counted_when_spark_commits_it(sink: Sink) -> None:
    report = TaskReport("0_0", processed=2, dropped={"node": {"late": 1}})
    messages: list[Any] = [
        PartitionMessage(PartitionResult([report], {"out": 2}, {"out": 1})),
        PartitionMessage(PartitionResult()),
    ]

    sink.writer().commit(messages, 0)
    sink.writer().commit(messages, 0)
    sink.writer().abort(messages, 1)

    note = RunFiles(sink.shipped.program().run_directory).read(BatchResult)
    assert (note.batch, note.reports) == (0, [report])
    assert note.totals.batches == 1
    assert note.totals.processed == {"0_0": 2}
    assert (note.totals.written, note.totals.refused) == ({"out": 2}, {"out": 1})


def test_sinks_of_two_programs_are_not_mixed_up(sink: Sink) -> None:
    other = ShippedProgram(b"", "other")

    one, two = sink_of(sink.shipped), sink_of(other)

    assert one.name() == two.name() == "headrace-sink"
    assert (one.shipped, two.shipped) == (sink.shipped, other)


def test_a_worker_buffers_output_in_sparks_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},elsewhere")
    assert local_folder() == tmp_path

    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
    assert local_folder() is None
