"""Writing to the embedded log: records get their offsets, inside one transaction of the file.

Run `make nightly PART=faults` and `tests/brokers/test_transactions.py` after a change here.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

import msgspec

from headrace.brokers.embedded.database import Database
from headrace.brokers.embedded.log_cleaner import clean_partition, is_dirty
from headrace.brokers.embedded.offsets import commit
from headrace.brokers.embedded.topics import find_partition
from headrace.brokers.log import OffsetAndMetadata, RawRecord, TopicPartition, producer_record
from headrace.errors import BrokerError, ProducerFencedError, RecordRefusedError
from headrace.records import NO_HEADERS, RecordMetadata

_RECORD_OVERHEAD = 70
"""The bytes that Kafka adds to key, value and headers for a batch of one record."""

_encode_headers = msgspec.msgpack.Encoder().encode


def now_ms() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000


def write(database: Database, records: Iterable[RawRecord]) -> list[RecordMetadata]:
    """Append records, and clean up where that is due."""
    records = list(records)
    with database.writing() as file:
        offsets, written = append(file, records)
    clean_where_due(database, written)
    return metadata_of(records, offsets)


def append(
    file: sqlite3.Connection, records: Iterable[RawRecord]
) -> tuple[list[int], list[TopicPartition]]:
    """Append records; return the offset of each, and the partitions that grew.

    If it raises, some may be appended: roll the transaction of the file back.
    """
    ends: dict[tuple[str, int | None], _End] = {}
    offsets: list[int] = []
    rows = _rows(file, records, ends, offsets)
    file.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?, ?)", rows)
    file.executemany(
        "UPDATE partition SET end_offset = ? WHERE id = ?",
        [(end.offset, end.id) for end in ends.values()],
    )
    return offsets, [end.name for end in ends.values()]


def _rows(
    file: sqlite3.Connection,
    records: Iterable[RawRecord],
    ends: dict[tuple[str, int | None], _End],
    offsets: list[int],
) -> Iterator[tuple[object, ...]]:
    """Yield records as rows, and note the ends of their partitions and the offset of each."""
    now = now_ms()
    for record in records:
        topic, number, timestamp, key, value, headers = record
        end = ends.get((topic, number))
        if end is None:
            end = ends[topic, number] = _End(file, topic, number)
        # Without a call where there are none, as in most records.
        packed = None if headers is NO_HEADERS or not headers else _encode_headers(list(headers))
        size = len(key or b"") + len(value or b"") + len(packed or b"")
        if size > end.most_bytes or timestamp < 0 or (key is None and end.compacts):
            raise _refused(record, end, size)
        offset = end.offset
        end.offset = offset + 1
        offsets.append(offset)
        stamp = now if end.stamps_append_time else timestamp
        yield end.base + offset, stamp, now, key, value, packed


def metadata_of(records: Iterable[RawRecord], offsets: Iterable[int]) -> list[RecordMetadata]:
    """Return where each record went."""
    return [
        RecordMetadata(record[0], record[1] or 0, offset)
        for record, offset in zip(records, offsets, strict=True)
    ]


class _End:
    """The end of a partition while records are appended to it."""

    __slots__ = ("base", "compacts", "id", "most_bytes", "name", "offset", "stamps_append_time")

    def __init__(self, file: sqlite3.Connection, topic: str, number: int | None) -> None:
        if number is None:
            msg = f"A record for topic {topic!r} has no partition. Decide it before writing."
            raise BrokerError(msg)
        partition = find_partition(file, TopicPartition(topic, number))
        self.id = partition.id
        self.name = partition.name
        self.base = partition.base
        self.offset = partition.end_offset
        self.most_bytes = partition.settings.max_message_bytes - _RECORD_OVERHEAD
        self.compacts = partition.settings.compacts
        self.stamps_append_time = partition.settings.stamps_append_time


def refusals(
    file: sqlite3.Connection, records: Iterable[RawRecord]
) -> list[tuple[int, RecordRefusedError]]:
    """Return the indexes of records that `append` refuses, and why."""
    ends: dict[tuple[str, int | None], _End] = {}
    refused = []
    for index, record in enumerate(records):
        topic, number, timestamp, key, value, headers = record
        end = ends.get((topic, number))
        if end is None:
            end = ends[topic, number] = _End(file, topic, number)
        size = len(key or b"") + len(value or b"")
        size += len(_encode_headers(list(headers))) if headers else 0
        if size > end.most_bytes or timestamp < 0 or (key is None and end.compacts):
            refused.append((index, _refused(record, end, size)))
    return refused


def _refused(record: RawRecord, end: _End, size: int) -> RecordRefusedError:
    if size > end.most_bytes:
        limit = end.most_bytes + _RECORD_OVERHEAD
        reason = f"it is too large ({size} bytes, and `max.message.bytes` is {limit})."
    elif record[2] < 0:
        reason = "its timestamp is negative."
    else:
        reason = "a compacted topic takes no record without a key."
    return RecordRefusedError(producer_record(record), reason=reason)


def clean_where_due(database: Database, written: Iterable[TopicPartition]) -> None:
    """Clean the partitions that have enough new records to make it worthwhile."""
    # The records are written. If cleaning fails, the next append cleans.
    with suppress(BrokerError):
        with database.reading() as file:
            due = [name for name in written if is_dirty(find_partition(file, name))]
        for name in due:
            with database.writing() as file:
                clean_partition(file, name, now_ms())


def take_over(database: Database, transactional_id: str) -> int:
    """Return a new epoch of a transactional id; earlier ones are fenced from here on."""
    with database.writing() as file:
        (epoch,) = file.execute(
            "INSERT INTO transactional VALUES (?, 0)"
            " ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1 RETURNING epoch",
            (transactional_id,),
        ).fetchone()
    return int(epoch)


def check_epoch(file: sqlite3.Connection, transactional_id: str, epoch: int) -> None:
    """Raise if another producer took over."""
    row = file.execute("SELECT epoch FROM transactional WHERE id = ?", (transactional_id,))
    if row.fetchone() != (epoch,):
        raise ProducerFencedError(transactional_id)


class EmbeddedTransaction:
    """A `LogTransaction` that is written at its end, as one transaction of the file.

    Iterators of records are read only then.
    """

    def __init__(self, database: Database, transactional_id: str) -> None:
        self._database = database
        self._id = transactional_id
        self._records: list[Iterable[RawRecord]] = []
        self._offsets: list[tuple[str, Mapping[TopicPartition, OffsetAndMetadata]]] = []
        self._asked: list[TopicPartition] = []
        self._ends: dict[TopicPartition, int] = {}

    def __enter__(self) -> EmbeddedTransaction:
        self._epoch = take_over(self._database, self._id)
        return self

    def __exit__(self, error: type[BaseException] | None, *rest: object) -> None:
        if error is None and (self._records or self._offsets):
            with self._database.writing() as file:
                check_epoch(file, self._id, self._epoch)
                _, written = append(file, chain.from_iterable(self._records))
                for group, offsets in self._offsets:
                    commit(file, group, offsets)
                for name in self._asked:
                    self._ends[name] = find_partition(file, name).end_offset
            clean_where_due(self._database, written)

    def append(self, records: Iterable[RawRecord], /) -> None:
        self._records.append(records)

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        self._offsets.append((group, dict(offsets)))

    def ask_ends(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        self._asked += partitions
        return self._ends
