"""Pack the records for one task into one binary value, so that a shuffle moves few rows.

A payload is a msgpack array. Its records are columns, so msgspec packs and unpacks them in C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from sys import intern
from typing import Any, TypeAlias

import msgspec

from headrace.engine.record_failures import FirstFailure
from headrace.engine.samples import SourceSamples
from headrace.engine.sinks import Output, Source
from headrace.records import NO_HEADERS, ConsumerRecord, Headers
from headrace.runtime.batches import Batch, Range

HeaderColumn: TypeAlias = "list[list[tuple[str, bytes | None]] | None] | None"
"""The headers of each record; None for those without, or if none has any."""


class InputRecords(msgspec.Struct, frozen=True, array_like=True):
    """Records of one partition of a topic or repartition, for one task."""

    subtopology: int
    """The subtopology of the task."""
    partition: int
    """The partition of the task."""
    task_number: int
    """The number of the task among all."""
    topic: str
    source: int
    """The partition they were read from; of a repartition, the number of the task that wrote."""
    first: int
    """The first offset; of a repartition, how many payloads of that task came before."""
    offsets: list[int] | None
    """The offsets, if there are holes between them."""
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: HeaderColumn = None


class TaskCall(msgspec.Struct, frozen=True, array_like=True):
    """Runs a task that may have no records, and names its inputs that have more."""

    subtopology: int
    partition: int
    task_number: int
    partitions_with_more: list[tuple[str, int]]
    """Topics and partitions that hold more records than the batch brings."""


class Sources(msgspec.Struct, frozen=True, array_like=True):
    """The input records that outputs are made of, as columns."""

    partitions: list[tuple[str, int]]
    """Topics and partitions, each once."""
    indexes: list[int]
    """For each output the index of its partition among them; -1: it is that of a punctuation."""
    offsets: list[int]


class TopicRecords(msgspec.Struct, frozen=True, array_like=True):
    """Records for one topic."""

    topic: str
    partitions: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: HeaderColumn = None
    sources: Sources | None = None
    """None: they are not known."""


class StoreReport(msgspec.Struct, frozen=True, array_like=True):
    """The report of a task about a store that can be queried."""

    changes: int
    """How many records the batch adds to its changelog."""
    times: dict[str, int] = {}
    """The facts that the store saves besides its entries: see `headrace.state.store_times`."""


class TaskReport(msgspec.Struct, frozen=True, array_like=True):
    """The report of a task about a batch."""

    task: str
    processed: int = 0
    bytes_read: int = 0
    dropped: dict[str, dict[str, int]] = {}
    """How many records were dropped, by node and reason."""
    next_due: int | None = None
    """The clock at which the task must be called again."""
    stream_time: int = -1
    held: int = 0
    """How many records are buffered, because another input lags."""
    ahead: list[str] = []
    """Topics of which so much is buffered that the planner should read no more."""
    starved: list[str] = []
    """Topics that the task waits for, although they hold more records."""
    waiting_from: dict[str, int] | None = None
    """The first buffered offset of each topic; None in a report without a task."""
    failures: list[FirstFailure] = []
    """The first failure that a handler skipped, for each node and reason."""
    stores: dict[str, StoreReport] = {}
    """The stores that can be queried, by changelog."""
    bytes_written: int = 0
    """How large the output is, for topics, repartitions and changelogs, packed."""
    sources: dict[str, int] = {}
    """How many records each source node has processed."""
    bytes_consumed: dict[str, dict[int, int]] = {}
    """The bytes of keys, values and headers that were read, by topic and partition."""
    bytes_produced: dict[str, int] = {}
    """The bytes of keys, values and headers that are written, by topic."""
    samples: dict[str, SourceSamples] = {}
    """The records that were measured, by source node."""
    events: dict[str, dict[str, int]] = {}
    """How often something happened, by node and event."""
    buffers: dict[str, tuple[int, int]] = {}
    """How many changes each ``suppress`` holds back, and their bytes, by node."""
    entries: dict[str, int] = {}
    """How many entries stores have, by store, if they are known."""

    @property
    def partition(self) -> int:
        """The partition of the task."""
        return int(self.task.rpartition("_")[2])


class TaskOutput(msgspec.Struct, frozen=True, array_like=True):
    """The output of a task in a batch, and its report."""

    task_number: int
    sequence: int
    """Its index among the outputs of the task in the batch."""
    report: TaskReport
    written: list[TopicRecords]


class Payload(msgspec.Struct, frozen=True, array_like=True):
    """The content of one row: input records, a task call, or task output."""

    batch: Batch
    input: InputRecords | None = None
    task_call: TaskCall | None = None
    outputs: TaskOutput | None = None


# As `ConsumerRecord._make` does, without a call of Python code per record.
_record = partial(tuple.__new__, ConsumerRecord)

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder(Payload).decode


def header_column(headers: list[Headers]) -> HeaderColumn:
    """Return the headers of records as plain data."""
    if headers.count(NO_HEADERS) == len(headers):
        return None
    return [list(each) if each else None for each in headers]


def records_of(payload: InputRecords) -> list[ConsumerRecord]:
    """Return the records of a payload."""
    count = len(payload.timestamps)
    offsets = payload.offsets or range(payload.first, payload.first + count)
    columns = zip(
        repeat(intern(payload.topic), count),  # the cache knows a topic by its identity
        repeat(payload.source, count),
        offsets,
        payload.timestamps,
        payload.keys,
        payload.values,
        _headers_of(payload.headers, count),
        strict=True,
    )
    return list(map(_record, columns))


def _headers_of(column: HeaderColumn, count: int) -> Iterable[Headers]:
    if column is None:
        return repeat(NO_HEADERS, count)
    return [Headers(each) if each else NO_HEADERS for each in column]


def columns_of(outputs: Sequence[Output]) -> tuple[list[Any], ...]:
    """Return outputs of one topic as columns: partitions, timestamps, keys, values, headers."""
    _, partitions, timestamps, keys, values, headers = zip(*outputs, strict=True)
    return list(partitions), list(timestamps), list(keys), list(values), list(headers)


def outputs_of(written: TopicRecords) -> Iterable[Output]:
    """Return the records of a topic as raw records."""
    count = len(written.timestamps)
    return zip(
        repeat(written.topic, count),
        written.partitions,
        written.timestamps,
        written.keys,
        written.values,
        _headers_of(written.headers, count),
        strict=True,
    )


def source_columns(sources: Sequence[Source | None]) -> Sources:
    """Return the input records of outputs as columns."""
    numbers: dict[tuple[str, int], int] = {}
    indexes = [
        -1 if source is None else numbers.setdefault(source[:2], len(numbers)) for source in sources
    ]
    offsets = [-1 if source is None else source[2] for source in sources]
    return Sources(list(numbers), indexes, offsets)


def sources_of(written: TopicRecords) -> Iterable[Source | None]:
    """Return the input record that each record of a topic is made of; None: it is not known."""
    sources = written.sources
    if sources is None:
        return repeat(None, len(written.timestamps))
    return (
        None if index < 0 else (*sources.partitions[index], offset)
        for index, offset in zip(sources.indexes, sources.offsets, strict=True)
    )


@dataclass(frozen=True)
class Split:
    """The part of a batch that one Spark task reads."""

    batch: Batch
    ranges: tuple[Range, ...]
    task_calls: tuple[TaskCall, ...] = ()
    lost: tuple[Range, ...] = ()
    """Offset ranges that were deleted when the batch was planned."""
