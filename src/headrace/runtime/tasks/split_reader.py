"""Read one split of a batch, and yield it as packed rows.

Run `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from headrace.brokers.log import (
    RecordColumns,
    TopicPartition,
    records_from_columns,
)
from headrace.brokers.sessions import Broker
from headrace.errors import RecordError
from headrace.runtime.batches import Batch, Range
from headrace.runtime.checkpoint.layout import TaskPlacement
from headrace.runtime.dead_letters import failure_of, write_dead_letters
from headrace.runtime.exchange.packing import (
    InputRecords,
    Payload,
    Split,
    TaskCall,
    TaskOutput,
    TaskReport,
    header_column,
)
from headrace.runtime.plan import GLOBAL_TASK, PlannedSubtopology
from headrace.runtime.program import Program, Row
from headrace.runtime.run_files import LOST
from headrace.runtime.tasks.range_reader import read_ranges
from headrace.runtime.tasks.task_run import NoStores, TaskRun


def rows_of(
    program: Program,
    open_log: Callable[[], Broker],
    split: Split,
    placements: dict[tuple[int, int], TaskPlacement],
) -> Iterator[Row]:
    """Read a split, run the tasks of stage 0, and yield the records for other stages packed."""
    log = open_log()
    batch = split.batch
    for task_call in split.task_calls:
        placement = placements[task_call.subtopology, task_call.partition]
        payload = Payload(batch, task_call=task_call)
        yield program.row(placement.stage, placement.grouping_key, payload, next_stage=1)
    rows: dict[TopicPartition, _RangeRows] = {}
    for each in split.ranges:
        name = TopicPartition(each.topic, each.partition)
        subtopology = program.plan.reader_of(each.topic)
        if subtopology is None:
            rows[name] = _GlobalRows(program, each, batch)
        elif subtopology.stage == 0:
            placement = placements[subtopology.id, each.partition]
            rows[name] = _ProcessedRows(program, open_log, subtopology, placement, each, batch)
        else:
            placement = placements[subtopology.id, each.partition]
            rows[name] = _PackedRows(program, subtopology, placement, each, batch)
    lost = {
        TopicPartition(each.topic, each.partition): each.end - each.start for each in split.lost
    }
    for name, columns in read_ranges(program, log, split.ranges, lost):
        yield from rows[name].of(columns)
    for read in rows.values():
        yield from read.rest()
    for name, count in lost.items():
        yield _lost_row(program, placements, name, count, batch)


class _RangeRows(Protocol):
    """Makes rows of the records of one offset range."""

    def of(self, columns: RecordColumns) -> Iterable[Row]:
        """Return the rows of some records."""
        ...

    def rest(self) -> Iterable[Row]:
        """Return the rows that follow when the range is read."""
        ...


class _ReadBytes:
    """Counts the bytes that are read of a range."""

    def __init__(self, each: Range) -> None:
        self._range = each
        self.size = 0
        """About how many bytes of memory the records take."""
        self._data = 0

    def add(self, columns: RecordColumns) -> None:
        """Count records."""
        size = columns.size()
        self.size += size
        self._data += columns.data_size(size)

    def report(self, task: str) -> TaskReport:
        """Return the counts as a report of a task."""
        consumed = {self._range.topic: {self._range.partition: self._data}} if self.size else {}
        return TaskReport(task, bytes_read=self.size, bytes_consumed=consumed)


class _PackedRows:
    """Sends records to the task that needs them."""

    def __init__(
        self,
        program: Program,
        subtopology: PlannedSubtopology,
        placement: TaskPlacement,
        each: Range,
        batch: Batch,
    ) -> None:
        self._program = program
        self._subtopology = subtopology
        self._placement = placement
        self._range = each
        self._batch = batch
        self._count = _ReadBytes(each)

    def of(self, columns: RecordColumns) -> Iterable[Row]:
        sent = self._count.size
        self._count.add(columns)
        stage, grouping_key = self._placement.stage, self._placement.grouping_key
        payload = _input(
            self._subtopology.id, self._placement.task_number, self._range, columns, self._batch
        )
        return [self._program.row(stage, grouping_key, payload, next_stage=1, sent=sent)]

    def rest(self) -> Iterable[Row]:
        placement, partition = self._placement, self._range.partition
        report = self._count.report(f"{self._subtopology.id}_{partition}")
        outputs = TaskOutput(placement.task_number, 0, report, [])
        payloads = {self._program.sink_stage: Payload(self._batch, outputs=outputs)}
        if not self._count.size and self._subtopology.has_several_inputs:
            # The range has no records, and its end may release those of another input.
            task_call = TaskCall(self._subtopology.id, partition, placement.task_number, [])
            payloads[placement.stage] = Payload(self._batch, task_call=task_call)
        return [
            self._program.row(stage, placement.grouping_key, payload, next_stage=1)
            for stage, payload in payloads.items()
        ]


class _ProcessedRows:
    """Runs a task without state on the records, and sends its output."""

    def __init__(
        self,
        program: Program,
        open_log: Callable[[], Broker],
        subtopology: PlannedSubtopology,
        placement: TaskPlacement,
        each: Range,
        batch: Batch,
    ) -> None:
        self._program = program
        self._open_log = open_log
        self._task_number = placement.task_number
        self._range = each
        self._batch = batch
        self._run = TaskRun(
            program,
            subtopology.id,
            each.partition,
            task_number=placement.task_number,
            grouping_key=placement.grouping_key,
            batch=batch,
            partitions_of=program.partitions_of(open_log),
        )
        self._task = self._run.open(NoStores())

    def of(self, columns: RecordColumns) -> Iterable[Row]:
        topic, partition = self._range.topic, self._range.partition
        records = records_from_columns(TopicPartition(topic, partition), columns)
        self._task.enqueue(topic, records, partition=partition)
        try:
            self._task.process()
            self._task.commit()
        except RecordError as error:
            write_dead_letters(
                self._program,
                self._open_log(),
                error,
                task_number=self._task_number,
                failure=failure_of(error, self._batch),
            )
            raise
        count = _ReadBytes(self._range)
        count.add(columns)
        return self._run.rows_of(self._task, 0, read=count.report(self._run.id))

    def rest(self) -> Iterable[Row]:
        self._task.close()
        return ()


class _GlobalRows:
    """Sends records to every copy of the global tables."""

    def __init__(self, program: Program, each: Range, batch: Batch) -> None:
        self._program = program
        self._range = each
        self._batch = batch
        self._count = _ReadBytes(each)

    def of(self, columns: RecordColumns) -> Iterable[Row]:
        sent = self._count.size
        self._count.add(columns)
        payload = _input(-1, -1, self._range, columns, self._batch)
        for stage in self._program.plan.global_stages():
            for grouping_key in self._program.global_grouping_keys:
                yield self._program.row(stage, grouping_key, payload, next_stage=1, sent=sent)

    def rest(self) -> Iterable[Row]:
        report = self._count.report(GLOBAL_TASK)
        payload = Payload(self._batch, outputs=TaskOutput(-1, 0, report, []))
        grouping_key, sink = self._program.global_grouping_keys[0], self._program.sink_stage
        return [self._program.row(sink, grouping_key, payload, next_stage=1)]


def _lost_row(
    program: Program,
    placements: dict[tuple[int, int], TaskPlacement],
    name: TopicPartition,
    count: int,
    batch: Batch,
) -> Row:
    """Return the row that reports records that were deleted before a batch read them."""
    subtopology = program.plan.reader_of(name.topic)
    if subtopology is None:
        task, grouping_key, task_number = GLOBAL_TASK, program.global_grouping_keys[0], -1
    else:
        placement = placements[subtopology.id, name.partition]
        task, grouping_key, task_number = (
            f"{subtopology.id}_{name.partition}",
            placement.grouping_key,
            placement.task_number,
        )
    report = TaskReport(task, dropped={name.topic: {LOST: count}})
    payload = Payload(batch, outputs=TaskOutput(task_number, 0, report, []))
    return program.row(program.sink_stage, grouping_key, payload, next_stage=1)


def _input(
    subtopology: int, task_number: int, each: Range, columns: RecordColumns, batch: Batch
) -> Payload:
    offsets, timestamps, keys, values, headers = columns
    first = offsets[0]
    has_holes = offsets[-1] - first + 1 != len(offsets)
    return Payload(
        batch,
        input=InputRecords(
            subtopology,
            each.partition,
            task_number,
            each.topic,
            each.partition,
            first,
            offsets if has_holes else None,
            timestamps,
            keys,
            values,
            None if headers is None else header_column(headers),
        ),
    )
