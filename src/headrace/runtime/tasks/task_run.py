"""Run one engine task for one batch: payloads in, rows out. It knows nothing of Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import repeat
from operator import attrgetter, itemgetter
from time import perf_counter
from typing import Any

import msgspec

from headrace.brokers.log import CHUNK_BYTES, RECORD_BYTES, record_size, slices
from headrace.brokers.sessions import Broker
from headrace.durations import MAX_MS
from headrace.engine.sinks import Output, Source, TracedOutputs
from headrace.engine.task import Task
from headrace.engine.task_state import TaskState, decode_task_state, encode_task_state
from headrace.processors.handlers import built_in_handler
from headrace.records import NO_HEADERS, ConsumerRecord
from headrace.runtime.batches import Batch
from headrace.runtime.btree.blobs import BlobStore
from headrace.runtime.btree.stores import BTreeStores
from headrace.runtime.exchange.packing import (
    InputRecords,
    Payload,
    StoreReport,
    TaskOutput,
    TaskReport,
    TopicRecords,
    columns_of,
    header_column,
    records_of,
    source_columns,
)
from headrace.runtime.plan import GLOBAL_TASK
from headrace.runtime.program import Program, Row
from headrace.runtime.run_files import LOST
from headrace.runtime.tasks.backlogs import Backlogs
from headrace.state.maps import StoreBackend

TASK_STATE_KEY = b"task_state"
"""The key of the blob that holds the task state."""

_BYTES_PER_PAYLOAD = CHUNK_BYTES
"""How large the records of one payload may be, unless one record alone is larger."""
_timestamp = itemgetter(3)


class NoStores:
    """The `StoreBackend` of tasks without stores."""

    def map(self, store: Any, /) -> Any:
        msg = f"a task without state was asked for store {store.name!r}"
        raise AssertionError(msg)

    def segments(self, store: Any, /) -> Any:
        return self.map(store)


class TaskRun:
    """One task during one batch. Its grouping key decides where its output is written."""

    def __init__(
        self,
        program: Program,
        subtopology: int,
        partition: int,
        *,
        task_number: int,
        grouping_key: int,
        batch: Batch,
        partitions_of: Callable[[str], int],
    ) -> None:
        self._program = program
        self._subtopology = program.plan.subtopology(subtopology)
        self._partition = partition
        self._task_number = task_number
        self._grouping_key = grouping_key
        self._batch = batch
        self._partitions_of = partitions_of
        self._sequences: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._payload_count = 0
        self._sent = 0
        """How many bytes it has sent."""

    @property
    def id(self) -> str:
        """The id of the task, as Kafka writes it."""
        return f"{self._subtopology.id}_{self._partition}"

    def open(
        self,
        data: StoreBackend,
        task_state: TaskState | None = None,
        global_stores: Mapping[str, Any] | None = None,
    ) -> Task:
        """Return the task, ready for records."""
        return Task(
            [self._subtopology.subtopology],
            self._program.settings,
            data,
            task_id=self.id,
            partition=self._partition,
            global_stores=global_stores,
            task_state=task_state,
            wall_clock=self._batch.clock,
            partitions_of=self._partitions_of,
            logs_changes=True,
            timer=perf_counter,
        )

    def run(
        self,
        payloads: Iterable[Payload],
        blobs: BlobStore,
        open_log: Callable[[], Broker],
        global_stores: Mapping[str, Any] | None = None,
    ) -> Iterator[Row]:
        """Process what came for the task, and yield what it wrote."""
        inputs, with_more = _sorted_inputs(payloads)
        task_state = load_task_state(blobs, self._program)
        backend = BTreeStores(blobs)
        task = self.open(backend, task_state, global_stores)
        backend.prefetch(_keys(inputs))
        backlogs = Backlogs(
            self._program,
            open_log,
            blobs,
            task_state,
            lambda records: backend.prefetch({raw.key for raw in records if raw.key is not None}),
        )
        backlogs.resume(task)
        first_offsets = {
            topic: task_state.repartition_offsets.get(topic, 0)
            for topic in self._subtopology.repartitions
        }
        offsets = dict(task_state.repartition_offsets)
        repartitions = set(self._subtopology.repartitions)
        for topic, source in with_more - inputs.keys():
            self._enqueue_none(task, topic, source)
        for (topic, source), read in inputs.items():
            if topic in repartitions:
                continue
            for payload in read:
                task.enqueue(
                    topic,
                    records_of(payload),
                    partition=source,
                    has_more=(topic, source) in with_more,
                )
        for topic in self._subtopology.repartitions:
            records = _merged(
                topic,
                self._partition,
                [read for (name, _), read in inputs.items() if name == topic],
                offsets.get(topic, 0),
            )
            offsets[topic] = offsets.get(topic, 0) + len(records)
            if records or (topic, -1) in with_more:
                task.enqueue(topic, records, has_more=(topic, -1) in with_more)
        task.process()
        task.advance_wall_clock(self._batch.clock)
        task.commit()
        task_state = task.save()
        task_state.repartition_offsets = offsets
        backlogs.save(task, task_state, first_offsets)
        for name, count in backlogs.lost.items():
            task.dropped[name.topic, LOST] = count
        task.close()
        changes = changes_of(task, self._partition)
        backend.flush()
        stored = TaskReport(self.id, entries=backend.entry_counts())
        backend.release()
        save_task_state(blobs, task_state)
        yield from self.rows_of(
            task, self._subtopology.stage, read=stored, changes=changes, backlogs=backlogs
        )

    def _enqueue_none(self, task: Task, topic: str, source: int) -> None:
        if source >= 0:
            task.enqueue(topic, [], partition=source, has_more=True)

    def rows_of(
        self,
        task: Task,
        stage: int,
        *,
        read: TaskReport,
        changes: Sequence[TopicRecords] = (),
        backlogs: Backlogs | None = None,
    ) -> list[Row]:
        """Return what a task wrote and did as rows, and forget it.

        ``read`` is the report to which the other figures are added.
        """
        by_topic: defaultdict[str, list[Output]] = defaultdict(list)
        for output in task.outputs:
            by_topic[output[0]].append(output)
        sources = _sources_by_topic(task)
        task.outputs.clear()
        rows: list[Row] = []
        written: list[TopicRecords] = []
        for topic, outputs in by_topic.items():
            if topic in self._program.readers:
                rows += self._repartitioned(topic, outputs, stage)
            else:
                written += _records_for(topic, outputs, sources.get(topic))
        written += changes
        nothing_yet = TaskReport(self.id)
        rows += [self._sink_row([records], nothing_yet, stage) for records in written[:-1]]
        size = sum(len(blob) for *_, blob in rows) + sum(map(_size_of, written[-1:]))
        report = msgspec.structs.replace(
            self._report(task, read, changes, backlogs),
            bytes_written=size,
            sources=task.take_processed(),
            bytes_produced=bytes_by_topic(written),
        )
        task.dropped, task.events = {}, {}
        rows.append(self._sink_row(written[-1:], report, stage))
        return rows

    def _sink_row(self, written: list[TopicRecords], report: TaskReport, stage: int) -> Row:
        self._payload_count += 1
        outputs = TaskOutput(self._task_number, self._payload_count, report, written)
        payload = Payload(self._batch, outputs=outputs)
        sink = self._program.sink_stage
        return self._row(sink, self._grouping_key, payload, stage)

    def _row(self, target_stage: int, target: int, payload: Payload, stage: int) -> Row:
        row = self._program.row(
            target_stage, target, payload, next_stage=stage + 1, sent=self._sent
        )
        self._sent += len(row[-1])
        return row

    def _repartitioned(self, topic: str, outputs: list[Output], stage: int) -> Iterator[Row]:
        reader, placements = self._program.readers[topic]
        by_partition: defaultdict[int, list[Output]] = defaultdict(list)
        for output in outputs:
            by_partition[output[1] or 0].append(output)
        for partition, some in by_partition.items():
            for _, timestamps, keys, values, headers in _cut(some):
                sequence = self._sequences[topic, partition]
                self._sequences[topic, partition] += 1
                placement = placements[partition]
                payload = Payload(
                    self._batch,
                    input=InputRecords(
                        reader,
                        partition,
                        placement.task_number,
                        topic,
                        self._task_number,
                        sequence,
                        None,
                        timestamps,
                        keys,
                        values,
                        header_column(headers),
                    ),
                )
                yield self._row(placement.stage, placement.grouping_key, payload, stage)

    def _report(
        self,
        task: Task,
        read: TaskReport,
        changes: Sequence[TopicRecords],
        backlogs: Backlogs | None,
    ) -> TaskReport:
        buffered = [] if backlogs is None else backlogs.ranges
        due = task.schedules.next_wall_clock_due
        if buffered:
            # A deadline stays when it has passed, until the input has records again.
            ahead = [each for each in task.deadlines.values() if each > self._batch.clock]
            due = min(due, *ahead) if ahead else self._batch.clock
        buffers = task.buffers()
        return msgspec.structs.replace(
            read,
            processed=task.processed,
            dropped=task.dropped_by_node(),
            next_due=int(due) if due < MAX_MS else None,
            stream_time=task.stream_time,
            held=sum(each.count for each in buffered),
            ahead=[] if backlogs is None else backlogs.topics_ahead(),
            starved=task.starved_topics() if buffered else [],
            waiting_from={each.topic: each.first for each in buffered},
            failures=list(task.failures.first.values()),
            stores=store_reports(task, changes, self._program),
            samples=task.take_samples(),
            events=task.events,
            buffers=buffers,
        )


def changes_of(task: Task, partition: int) -> list[TopicRecords]:
    """Return what changed in the stores that can be queried, for their changelogs."""
    written: list[TopicRecords] = []
    for changelog in task.changelogs.values():
        timestamps, keys, values = changelog.take()
        sizes = list(map(record_size, keys, values, repeat(None)))
        for start, end in slices(sizes, _BYTES_PER_PAYLOAD):
            some = slice(start, end)
            partitions = [partition] * (end - start)
            columns = partitions, timestamps[some], keys[some], values[some]
            written.append(TopicRecords(changelog.topic, *columns))
    return written


def store_reports(
    task: Task, changes: Sequence[TopicRecords], program: Program
) -> dict[str, StoreReport]:
    """Return the reports about the stores of a task that can be queried.

    With ``at_least_once`` changes that are the same count once, as in the copies of readers.
    """
    counts: Counter[str] = Counter()
    if program.config.processing_guarantee == "at_least_once":
        found: defaultdict[str, set[tuple[object, ...]]] = defaultdict(set)
        for written in changes:
            rows = zip(written.timestamps, written.keys, written.values, strict=True)
            found[written.topic].update(rows)
        counts.update({topic: len(rows) for topic, rows in found.items()})
    else:
        for written in changes:
            counts[written.topic] += len(written.timestamps)
    return {
        changelog.topic: StoreReport(counts[changelog.topic], task.saved_times(store))
        for store, changelog in task.changelogs.items()
    }


def load_task_state(blobs: BlobStore, program: Program) -> TaskState:
    """Return the task state of a grouping key; a new one if it has none."""
    [stored] = blobs.get_many([TASK_STATE_KEY])
    if stored is None:
        return TaskState()
    return decode_task_state(stored, program.plan.application_id)


def save_task_state(blobs: BlobStore, task_state: TaskState) -> None:
    """Write the task state of a grouping key."""
    blobs.apply({TASK_STATE_KEY: encode_task_state(task_state)})


def open_global_task(
    program: Program, blobs: BlobStore, clock: int, *, logs_changes: bool = False
) -> tuple[Task, BTreeStores]:
    """Return the task that keeps the global stores, and where it keeps them."""
    # As Kafka does: records that a global table cannot read are left out, and counted.
    lenient = replace(
        program.settings,
        on_deserialization_error=built_in_handler("continue"),
        cache_max_bytes=0,
        max_task_idle_ms=0,
    )
    backend = BTreeStores(blobs)
    task = Task(
        program.plan.global_subtopologies,
        lenient,
        backend,
        task_id=GLOBAL_TASK,
        task_state=load_task_state(blobs, program),
        wall_clock=clock,
        logs_changes=logs_changes,
    )
    return task, backend


def update_global_task(
    task: Task, backend: BTreeStores, blobs: BlobStore, payloads: Iterable[Payload]
) -> list[TopicRecords]:
    """Bring global stores up to date with what came for them; return their changes."""
    inputs, _ = _sorted_inputs(payloads)
    for (topic, source), read in inputs.items():
        for payload in read:
            task.enqueue(topic, records_of(payload), partition=source)
    task.process()
    task.commit()
    changes = changes_of(task, 0)
    backend.flush()
    save_task_state(blobs, task.save())
    return changes


def _sorted_inputs(
    payloads: Iterable[Payload],
) -> tuple[dict[tuple[str, int], list[InputRecords]], set[tuple[str, int]]]:
    """Return what came by topic and partition, in order, and the inputs that have more.

    Spark promises no order, and a replay must see the same one.
    """
    inputs: dict[tuple[str, int], list[InputRecords]] = {}
    with_more: set[tuple[str, int]] = set()
    for payload in payloads:
        if payload.input is not None:
            inputs.setdefault((payload.input.topic, payload.input.source), []).append(payload.input)
        elif payload.task_call is not None:
            with_more.update(payload.task_call.partitions_with_more)
    for read in inputs.values():
        read.sort(key=attrgetter("first"))
    return dict(sorted(inputs.items())), with_more


def _keys(inputs: Mapping[tuple[str, int], list[InputRecords]]) -> set[bytes]:
    keys: set[bytes | None] = set()
    for read in inputs.values():
        for payload in read:
            keys.update(payload.keys)
    return {key for key in keys if key is not None}


def _merged(
    topic: str, partition: int, read: list[list[InputRecords]], offset: int
) -> list[ConsumerRecord]:
    """Return the records of a repartition: its writers merged by the times of their heads."""
    streams = [
        [record for payload in payloads for record in records_of(payload)] for payloads in read
    ]
    records = streams[0] if len(streams) == 1 else list(merge(*streams, key=_timestamp))
    if not records:
        return []
    _, _, _, timestamps, keys, values, headers = zip(*records, strict=True)
    count = len(records)
    return list(
        map(
            ConsumerRecord._make,
            zip(
                repeat(topic, count),
                repeat(partition, count),
                range(offset, offset + count),
                timestamps,
                keys,
                values,
                headers,
                strict=True,
            ),
        )
    )


def _records_for(
    topic: str, outputs: list[Output], sources: list[Source | None] | None
) -> Iterator[TopicRecords]:
    """Yield the outputs for a topic, each part small enough for one payload."""
    start = 0
    for partitions, timestamps, keys, values, headers in _cut(outputs):
        end = start + len(keys)
        traced = None if sources is None else source_columns(sources[start:end])
        start = end
        column = header_column(headers)
        yield TopicRecords(topic, partitions, timestamps, keys, values, column, traced)


def _sources_by_topic(task: Task) -> dict[str, list[Source | None]]:
    """Return the input records of the outputs of a task; nothing if they are not traced."""
    by_topic: defaultdict[str, list[Source | None]] = defaultdict(list)
    if isinstance(task.outputs, TracedOutputs):
        for output, source in zip(task.outputs, task.outputs.sources, strict=True):
            by_topic[output[0]].append(source)
    return by_topic


def _size_of(written: TopicRecords) -> int:
    """Return how many bytes keys and values have: about how large records are, packed."""
    return _data_bytes(written.keys, written.values)


def _data_bytes(keys: list[bytes | None], values: list[bytes | None]) -> int:
    return sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))


def bytes_by_topic(written: Iterable[TopicRecords]) -> dict[str, int]:
    """Return how many bytes keys, values and headers have, by topic."""
    sizes: Counter[str] = Counter()
    for each in written:
        headers = (pair for some in each.headers or () for pair in some or ())
        sizes[each.topic] += _size_of(each)
        sizes[each.topic] += sum(len(name.encode()) + len(value or b"") for name, value in headers)
    return dict(sizes)


def _cut(outputs: list[Output]) -> Iterator[tuple[list[Any], ...]]:
    """Yield outputs as `columns_of` returns them, in parts that fit into one payload each."""
    columns = columns_of(outputs)
    *_, keys, values, headers = columns
    size = _data_bytes(keys, values) + RECORD_BYTES * len(keys)
    if size <= _BYTES_PER_PAYLOAD and headers.count(NO_HEADERS) == len(headers):
        # Most output is small, and a function call per record would take longer than its size.
        yield columns
        return
    sizes = list(map(record_size, keys, values, headers))
    for start, end in slices(sizes, _BYTES_PER_PAYLOAD):
        yield tuple(column[start:end] for column in columns)
