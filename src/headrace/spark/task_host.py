"""Run engine tasks inside Spark's transformWithState: each grouping key is a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.errors import StreamsError
from headrace.runtime import program
from headrace.runtime.gc_pause import without_collection
from headrace.runtime.tasks.stage import StageRun
from headrace.spark.blob_state import SparkBlobs
from headrace.spark.processes.worker_output import forward_output, report_dropped
from headrace.spark.processes.worker_startup import keep_pandas_out
from headrace.spark.shipping import ShippedProgram, worker_log
from headrace.spark.worker_errors import errors_to_driver

_ROW = Row("grouping_key", "stage", "target", "blob")
_MOST_BYTES = 2**31 - (32 << 20)
"""How many bytes a grouping key may return: PySpark makes one Arrow array of them."""


class TaskHost(StatefulProcessor):
    """Runs the tasks of one stage."""

    def __init__(self, shipped: ShippedProgram, stage: int) -> None:
        self._shipped = shipped
        self._stage = stage

    def init(self, handle: StatefulProcessorHandle) -> None:
        keep_pandas_out()
        self._data = handle.getMapState("data", "key binary", "value binary")
        shipped = self._shipped
        self._run_directory = shipped.program().run_directory
        self._run = StageRun(
            shipped.program(),
            self._stage,
            lambda grouping_key: _OtherKey(self, grouping_key),
            lambda: worker_log(shipped),
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        # Not in `init`: a process of Spark that prints lines of its own calls that, too.
        forward_output(self._run_directory)
        with errors_to_driver(), without_collection():
            self.blobs = SparkBlobs(self._data, tuple(key))
            for row in within_limit(self._run.process(key[0], rows, self.blobs)):
                yield _ROW(*row)

    def close(self) -> None:
        report_dropped()


def within_limit(
    rows: Iterable[program.Row], most_bytes: int = _MOST_BYTES
) -> Iterator[program.Row]:
    """Yield the rows that a grouping key returns in a batch.

    Raises:
        StreamsError: They have more bytes than Spark takes.
    """
    size = 0
    for row in rows:
        size += len(row[3])
        if size > most_bytes:
            msg = (
                f"A task makes more than {most_bytes >> 20} MB in one batch, which Spark does not "
                "take. Split the step that makes so much, or spread its input over more partitions "
                "with `repartition` before it."
            )
            raise StreamsError(msg)
        yield row


class _OtherKey:
    """The state of another grouping key of the same partition."""

    def __init__(self, host: TaskHost, grouping_key: int) -> None:
        self._host = host
        self._grouping_key = grouping_key

    def get_many(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        return self._host.blobs.for_grouping_key(self._grouping_key).get_many(keys)

    def apply(self, changes: Mapping[bytes, bytes | None], /) -> None:
        self._host.blobs.for_grouping_key(self._grouping_key).apply(changes)
