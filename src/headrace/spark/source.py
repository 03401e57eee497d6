"""The Python stream source: topics in, packed rows out.

Run `make nightly PART=faults` after a change here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.brokers.opening import open_log
from headrace.errors import CheckpointError
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.layout import CheckpointLayout, TaskPlacement, read_layout
from headrace.runtime.exchange.packing import Split
from headrace.runtime.gc_pause import without_collection
from headrace.runtime.planning.planner import Planner
from headrace.runtime.program import Row
from headrace.runtime.run_files import RunFiles
from headrace.runtime.tasks.split_reader import rows_of
from headrace.spark.batch_log import spark_checkpoint
from headrace.spark.masters import is_one_process
from headrace.spark.processes.worker_output import forward_output, report_dropped
from headrace.spark.processes.worker_startup import keep_pandas_out
from headrace.spark.shipping import ShippedProgram, worker_log
from headrace.spark.worker_errors import errors_to_driver

ROW_SCHEMA = "grouping_key int, stage int, target int, blob binary"
"""The rows of the query: the key of the next exchange, then stage, target and payload."""

_ARROW_SCHEMA = pa.schema(
    {"grouping_key": pa.int32(), "stage": pa.int32(), "target": pa.int32(), "blob": pa.binary()}
)
BYTES_PER_BATCH = 8 << 20
"""How large an Arrow batch is, unless one row alone is larger."""


class TopicSource(DataSource):
    """The data source of one application."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        return ROW_SCHEMA

    def streamReader(self, schema: Any) -> TopicReader:
        return TopicReader(self.shipped, Path(self.options["checkpoint"]))

    shipped: ShippedProgram


def source_of(shipped: ShippedProgram) -> type[TopicSource]:
    """Return the data source of a program. Spark needs a class, and sends it by value."""

    class ProgramSource(TopicSource):
        pass

    ProgramSource.shipped = shipped
    return ProgramSource


class SplitPartition(InputPartition):
    """The split of one Spark task, with the placements of its payloads."""

    def __init__(self, split: Split, placements: dict[tuple[int, int], TaskPlacement]) -> None:
        self.split = split
        self.placements = placements


class TopicReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, and reads them in Spark's tasks."""

    def __init__(self, shipped: ShippedProgram, checkpoint: Path) -> None:
        self._shipped = shipped
        self._checkpoint = checkpoint
        self._planner: Planner | None = None

    def initialOffset(self) -> dict[str, Any]:
        with errors_to_driver():
            return self._plan().first().as_dict()

    def prepareForTriggerAvailableNow(self) -> None:
        with errors_to_driver():
            self._plan().stop_at_current_ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with errors_to_driver():
            boundary = BatchBoundary.from_dict(start)
            end = self._plan().next(boundary)
            return start if end is boundary else end.as_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SplitPartition]:
        with errors_to_driver():
            splits = self._plan().splits(
                BatchBoundary.from_dict(start), BatchBoundary.from_dict(end)
            )
            plan = self._shipped.program().plan
            return [
                SplitPartition(split, self._layout.placements_of(plan, split)) for split in splits
            ]

    def _plan(self) -> Planner:
        if self._planner is None:
            program = self._shipped.program()
            forward_output(program.run_directory)
            self._log = open_log(program.config)
            self._layout = self._read_layout()
            self._planner = Planner(
                program.plan,
                program.config,
                self._log,
                self._layout,
                spark_checkpoint(program.plan.application_id, self._checkpoint),
                RunFiles(program.run_directory),
                leader_epoch=program.leader_epoch,
                stages_run_once=is_one_process(program.config),
            )
            if self._planner.snapshots is not None:
                self._planner.snapshots.start()
        return self._planner

    def _read_layout(self) -> CheckpointLayout:
        layout = read_layout(self._shipped.program().plan.application_id, self._checkpoint)
        if layout is None:
            msg = f"The checkpoint {str(self._checkpoint)!r} disappeared while it was used."
            raise CheckpointError(msg)
        return layout

    def stop(self) -> None:
        if self._planner is not None:
            if self._planner.snapshots is not None:
                self._planner.snapshots.close()
            self._log.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitPartition)
        keep_pandas_out()
        with errors_to_driver(), without_collection():
            program = self._shipped.program()
            forward_output(program.run_directory)
            rows = rows_of(
                program,
                lambda: worker_log(self._shipped),
                partition.split,
                partition.placements,
            )
            yield from record_batches(rows)
            report_dropped()


def record_batches(rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches of about 8 MB."""
    waiting: list[Row] = []
    size = 0
    for row in rows:
        if waiting and size + len(row[3]) > BYTES_PER_BATCH:
            yield _record_batch(waiting)
            waiting, size = [], 0
        waiting.append(row)
        size += len(row[3])
    if waiting:
        yield _record_batch(waiting)


def _record_batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)
