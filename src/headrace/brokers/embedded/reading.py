"""Reading from the embedded log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from operator import lt
from typing import Any

import msgspec

from headrace.brokers.embedded.database import Database, Offset
from headrace.brokers.embedded.topics import find_partition, next_base
from headrace.brokers.log import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    RECORD_BYTES,
    OffsetAndTimestamp,
    RecordColumns,
    TopicPartition,
)
from headrace.errors import OffsetOutOfRangeError
from headrace.records import NO_HEADERS, Headers

_decode_headers = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]]).decode
_BYTES = {bytes, type(None)}


def read_columns(
    database: Database, name: TopicPartition, start: int, end: int
) -> Iterator[RecordColumns]:
    """Yield the records of a range, in chunks that fit in memory.

    Each chunk is read by itself: a reader that takes its time does not hold the file open.
    """
    while start < end:
        with database.reading() as file:
            columns = read_some(file, name, start, end, CHUNK_RECORDS)
        if not columns.offsets:
            return
        start = columns.offsets[-1] + 1
        yield columns


def read_some(
    file: sqlite3.Connection, name: TopicPartition, start: int, end: int, limit: int
) -> RecordColumns:
    """Return the first records of a range: at least one if there is one."""
    partition = find_partition(file, name)
    if start < partition.log_start_offset:
        raise OffsetOutOfRangeError(*name, offset=start, beginning=partition.log_start_offset)
    base = partition.base
    selected = file.execute(
        "SELECT rowid, timestamp, key, value, headers FROM record"
        " WHERE rowid >= ? AND rowid < ? ORDER BY rowid LIMIT ?",
        (base + min(start, partition.end_offset), min(base + end, next_base(base)), limit),
    )
    rows: list[tuple[Any, ...]] = []
    size = 0
    try:
        for row in selected:
            size += RECORD_BYTES + sum(len(data) for data in row[2:] if data is not None)
            if rows and size > CHUNK_BYTES:
                break
            rows.append(row)
    except TypeError as error:
        raise _damage(name) from error
    if not rows:
        return RecordColumns([], [], [], [], None)
    rowids, timestamps, keys, values, packed = zip(*rows, strict=True)
    types = {*map(type, keys), *map(type, values), *map(type, packed)}
    if not (types <= _BYTES and set(map(type, timestamps)) == {int}):
        raise _damage(name)
    # A reader continues behind the last row, and would otherwise never end.
    if rowids[0] < base + start or not all(map(lt, rowids, rowids[1:])):
        raise _damage(name)
    return RecordColumns(
        [rowid - base for rowid in rowids],
        list(timestamps),
        list(keys),
        list(values),
        [NO_HEADERS if data is None else Headers(_decode_headers(data)) for data in packed]
        if any(packed)
        else None,
    )


def first_at(
    file: sqlite3.Connection, name: TopicPartition, timestamp: int
) -> OffsetAndTimestamp | None:
    """Return the first record of a partition at or after a timestamp."""
    base = find_partition(file, name).base
    row = file.execute(
        "SELECT rowid, timestamp FROM record"
        " WHERE rowid >= ? AND rowid < ? AND timestamp >= ? ORDER BY rowid LIMIT 1",
        (base, next_base(base), timestamp),
    ).fetchone()
    if row is None:
        return None
    rowid, time = row
    return OffsetAndTimestamp(*msgspec.convert((rowid - base, time), tuple[Offset, int]))


def _damage(name: TopicPartition) -> sqlite3.DataError:
    return sqlite3.DataError(f"a record of {name} has a column of another type or is out of order")
