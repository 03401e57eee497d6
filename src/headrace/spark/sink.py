"""The Python stream sink: Spark passes it the output of the tasks, and it writes each batch once.

Run `make nightly PART=faults` after a change here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.runtime.output.batch_writer import BatchWriter, PartitionResult, batch_result
from headrace.runtime.run_files import BatchResult, RunFiles
from headrace.spark.processes.worker_output import forward_output, report_dropped
from headrace.spark.processes.worker_startup import keep_pandas_out
from headrace.spark.shipping import ShippedProgram, worker_log
from headrace.spark.worker_errors import errors_to_driver


class TopicSink(DataSource):
    """The data source of one application, as a sink."""

    shipped: ShippedProgram

    @classmethod
    def name(cls) -> str:
        return "headrace-sink"

    def streamWriter(self, schema: Any, overwrite: bool) -> TopicWriter:  # noqa: FBT001  # Spark's
        return TopicWriter(self.shipped)


def sink_of(shipped: ShippedProgram) -> type[TopicSink]:
    """Return the sink of a program. Spark needs a class, and sends it by value."""

    class ProgramSink(TopicSink):
        pass

    ProgramSink.shipped = shipped
    return ProgramSink


class PartitionMessage(WriterCommitMessage):
    """Brings the result of a partition to the driver."""

    def __init__(self, result: PartitionResult) -> None:
        self.result = result


class TopicWriter(DataSourceStreamArrowWriter):
    """Writes the outputs of one Spark partition and batch."""

    def __init__(self, shipped: ShippedProgram) -> None:
        self._shipped = shipped

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartitionMessage:
        keep_pandas_out()
        with errors_to_driver():
            context = TaskContext.get()
            assert context is not None, "called by Spark"
            program = self._shipped.program()
            forward_output(program.run_directory)
            batch = BatchWriter(
                program,
                worker_log(self._shipped),
                partition=context.partitionId(),
                batch=int(context.getLocalProperty("streaming.sql.batchId") or -1),
                query=context.getLocalProperty("sql.streaming.queryId") or "",
                attempt=context.attemptNumber(),
                buffer_folder=local_folder(),
            )
            blobs = (blob for some in iterator for blob in some.column("blob").to_pylist())
            try:
                return PartitionMessage(batch.write(blobs))
            finally:
                report_dropped()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        run_files = RunFiles(self._shipped.program().run_directory)
        last = run_files.read(BatchResult)
        if batchId <= last.batch:
            return  # a replay of a batch that is counted
        results = [message.result for message in messages if isinstance(message, PartitionMessage)]
        assert len(results) == len(messages), "Spark commits only what every partition has written"
        run_files.write(batch_result(last, batchId, results))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass  # a replay finds committed transactions by their markers


def local_folder() -> Path | None:
    """Return Spark's folder for files of this worker; None: there is none."""
    first, _, _ = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")
    return Path(first) if first and Path(first).is_dir() else None
