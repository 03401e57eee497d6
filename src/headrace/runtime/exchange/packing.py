"""Parcels: many records of one target in one binary value, so that few rows cross an exchange.

A parcel is a msgpack array. Records are kept as columns, which packs and unpacks in C.
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
from headrace.engine.sinks import Output
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
    """The partition they were read from; of a repartition, the marker of the task that wrote."""
    first: int
    """The first offset; of a repartition, how many parcels came before from there."""
    offsets: list[int] | None
    """The offsets, if there are holes between them."""
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: HeaderColumn = None


class TaskCall(msgspec.Struct, frozen=True, array_like=True):
    """Calls a task that may get no records, and says which of its inputs have more."""

    subtopology: int
    partition: int
    task_number: int
    partitions_with_more: list[tuple[str, int]]
    """Topics and partitions that hold more records than the batch brings."""


class TopicRecords(msgspec.Struct, frozen=True, array_like=True):
    """Records for one topic."""

    topic: str
    partitions: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: HeaderColumn = None


class TaskReport(msgspec.Struct, frozen=True, array_like=True):
    """What a task did in a batch."""

    task: str
    processed: int = 0
    bytes_read: int = 0
    dropped: dict[str, dict[str, int]] = {}
    """How many records were left out, by node and reason."""
    next_due: int | None = None
    """The clock at which the task must be called again."""
    stream_time: int = -1
    held: int = 0
    """How many records wait for another input."""
    ahead: list[str] = []
    """Topics of which so much waits that no more of them should be read."""
    waiting_from: dict[str, int] | None = None
    """The first offset of each topic that waits for another input; None if that is not told."""
    failures: list[FirstFailure] = []
    """The first failure that a handler skipped, for each node and reason."""


class TaskOutput(msgspec.Struct, frozen=True, array_like=True):
    """What a task wrote in a batch, and what it did."""

    task_number: int
    sequence: int
    """Its place among what the task wrote in the batch."""
    report: TaskReport
    written: list[TopicRecords]


class Payload(msgspec.Struct, frozen=True, array_like=True):
    """What one row carries: one of its parts is there."""

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
    """Return the records of a parcel."""
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
    """Return the records of a topic as a log appends them."""
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


@dataclass(frozen=True)
class Split:
    """What one Spark task reads of a batch."""

    batch: Batch
    ranges: tuple[Range, ...]
    task_calls: tuple[TaskCall, ...] = ()
    lost: tuple[Range, ...] = ()
    """What was gone when the batch was planned."""
