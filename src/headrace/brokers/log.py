"""TopicLog: one interface to topics, in Kafka or in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import repeat
from typing import NamedTuple, Protocol, TypeAlias

from headrace.errors import RecordRefusedError
from headrace.records import (
    NO_HEADERS,
    ConsumerRecord,
    Headers,
    ProducerRecord,
    RecordMetadata,
    headers_of,
    payload_size,
    without_payload,
)

CHUNK_RECORDS = 5_000
"""How many records are read at once: more do not fit in the processor's cache."""

CHUNK_BYTES = 8 << 20
"""How many bytes are read at once, unless one record alone has more."""

RECORD_BYTES = 100
"""About how much memory a record takes besides its key, value and headers; so does a header."""

RawRecord: TypeAlias = tuple[
    str, int | None, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]] | None
]
"""A `ProducerRecord`, or a plain tuple of the same: topic, partition, timestamp, key, value and
headers."""


def producer_record(record: RawRecord) -> ProducerRecord:
    """Return a record by its names."""
    topic, partition, timestamp, key, value, headers = record
    return ProducerRecord(topic, partition, timestamp, key, value, headers_of(headers or ()))


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """The next offset that a group reads, with its metadata."""

    offset: int
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """An offset, with the timestamp of the record there."""

    offset: int
    timestamp: int


class RecordColumns(NamedTuple):
    """Records of one partition in columns, so that no object is created per record."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers] | None
    """None if no record has any."""

    def size(self) -> int:
        """Return about how many bytes of memory the records take."""
        size = sum(map(len, filter(None, self.values))) + sum(map(len, filter(None, self.keys)))
        if self.headers is not None:
            # No function is called per record: this runs for every chunk that is read.
            size += sum(
                RECORD_BYTES + len(name) + len(value or b"")
                for each in self.headers
                for name, value in each
            )
        return size + RECORD_BYTES * len(self.offsets)

    def data_size(self, size: int) -> int:
        """Return how many bytes keys, values and headers have, of the result of `size`."""
        others = 0 if self.headers is None else sum(map(len, self.headers))
        return size - RECORD_BYTES * (len(self.offsets) + others)

    def without_oversized(self, most_bytes: int) -> RecordColumns:
        """Return the records, those above a size without their keys, values and headers."""
        if self.size() <= most_bytes:
            return self
        offsets, timestamps, keys, values, headers = self
        sizes = list(map(payload_size, keys, values, headers or repeat(())))
        if max(sizes) <= most_bytes:
            return self
        timestamps, keys, values = list(timestamps), list(keys), list(values)
        headers = [NO_HEADERS] * len(offsets) if headers is None else list(headers)
        for index, size in enumerate(sizes):
            if size > most_bytes:
                timestamps[index], headers[index] = without_payload(timestamps[index], size)
                keys[index] = values[index] = None
        return RecordColumns(offsets, timestamps, keys, values, headers)

    def pieces(self, size: int) -> Iterator[RecordColumns]:
        """Yield records of a ``size`` in chunks; a record that is larger than a chunk is alone."""
        if len(self.offsets) <= CHUNK_RECORDS and size <= CHUNK_BYTES:
            yield self
            return
        sizes = list(map(record_size, self.keys, self.values, self.headers or repeat(())))
        for first, last in slices(sizes, CHUNK_BYTES):
            for start in range(first, last, CHUNK_RECORDS):
                end = min(start + CHUNK_RECORDS, last)
                yield RecordColumns._make(column and column[start:end] for column in self)


def record_size(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
) -> int:
    """Return about how many bytes of memory a record takes."""
    headers = headers or ()
    return RECORD_BYTES * (1 + len(headers)) + payload_size(key, value, headers)


def slices(sizes: Sequence[int], most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield where to cut items so that no slice is above a size, unless one item alone is.

    Args:
        sizes: The size of each item.
        most_bytes: How large a slice may be.
    """
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and total + size > most_bytes:
            yield start, index
            start, total = index, 0
        total += size
    if sizes:
        yield start, len(sizes)


OffsetRange: TypeAlias = tuple[TopicPartition, int, int]
"""A partition, the first offset to read, and the offset to stop before."""

PartitionColumns: TypeAlias = tuple[TopicPartition, RecordColumns]
"""Some records of one partition."""


def records_from_columns(partition: TopicPartition, columns: RecordColumns) -> list[ConsumerRecord]:
    """Return the records of columns."""
    topic, number = partition
    offsets, timestamps, keys, values, headers = columns
    rows = zip(
        repeat(topic),
        repeat(number),
        offsets,
        timestamps,
        keys,
        values,
        repeat(NO_HEADERS) if headers is None else headers,
        strict=False,
    )
    # As `ConsumerRecord._make` does, without a call of Python code per record.
    return list(map(partial(tuple.__new__, ConsumerRecord), rows))


@dataclass(frozen=True)
class TopicDescription:
    """A topic with its settings."""

    topic: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """The topic's own settings by Kafka's names; the others are the broker's."""


@dataclass(frozen=True)
class MemberDescription:
    """One consumer of a group."""

    member_id: str
    client_id: str
    partitions: tuple[TopicPartition, ...] = ()
    """Its assigned partitions."""


class LeadershipKind(Enum):
    """Chooses the process that runs an application."""

    GROUP = "group"
    """The member of a group that owns its only partition; the log fences a silent one."""
    DIRECTORY_LOCK = "directory lock"
    """The process that holds the lock on the application's folder on this machine."""


class LogTransaction(Protocol):
    """Records and offsets that appear together or not at all. Its methods return at once."""

    def append(self, records: Iterable[RawRecord], /) -> None:
        """Add records. Each needs its partition."""

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        """Add the offsets of a group; they count from the same moment as the records."""

    def ask_ends(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        """Return the offsets behind the last records of partitions: filled in by the commit.

        They do not count the end of the transaction itself, if no other writer appends.
        """
        ...


class TopicLog(Protocol):
    """Topics, their records, and the committed offsets of groups.

    Reading is ``read_committed``: records of open or aborted transactions are not visible, and the
    end of a partition is its last stable offset. Offsets grow but may have holes, so a range is no
    count. Each call that waits for a broker raises a `BrokerError` after a timeout.
    """

    @property
    def is_local(self) -> bool:
        """Return whether only processes of this machine reach it."""
        ...

    @property
    def creates_topics(self) -> bool:
        """Return whether an application creates the missing topics it writes to; else you do."""
        ...

    @property
    def address(self) -> str:
        """The file, or the bootstrap servers."""
        ...

    def cluster_id(self) -> str:
        """Return the id of the cluster, which names the folder of an application's state.

        Raises:
            BrokerUnavailableError: The broker did not answer.
        """
        ...

    def leadership(self) -> LeadershipKind:
        """Return how the log chooses the process that runs an application."""
        ...

    def create_topic(
        self, topic: str, /, *, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic.

        Args:
            topic: Its name: 1 to 249 letters, digits, dots, underscores and hyphens.
            partitions: How many partitions it has.
            settings: ``cleanup.policy``, ``retention.ms`` and the like, by Kafka's names. Also
                ``replication.factor``, without effect in a file; -1 is the broker's default.

        Raises:
            TopicExistsError: The topic exists.
        """

    def delete_topic(self, topic: str, /) -> None:
        """Delete a topic with its records and its committed offsets."""

    def grow_topic(self, topic: str, /, *, partitions: int) -> None:
        """Add partitions to a topic until it has ``partitions``; records stay where they are."""

    def alter_topic(self, topic: str, /, settings: Mapping[str, str | None]) -> None:
        """Change settings of a topic, by Kafka's names; None gives one back to the broker."""

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted, without the broker's internal ones."""
        ...

    def partition_count(self, topic: str, /) -> int:
        """Return how many partitions a topic has.

        Raises:
            UnknownTopicError: There is no such topic; the error has similar names.
        """
        ...

    def topic_ids(self, topics: Iterable[str], /) -> dict[str, str]:
        """Return each topic's unique id. A topic that is recreated has a new one.

        Raises:
            UnknownTopicError: One of them does not exist.
        """
        ...

    def describe_topic(self, topic: str, /) -> TopicDescription:
        """Return a topic with its settings."""
        ...

    def read(
        self, partition: TopicPartition, start: int, end: int, /
    ) -> Iterator[list[ConsumerRecord]]:
        """Yield the records with ``start <= offset < end``, in order, a list at a time.

        Keys and values are bytes, or None.

        Raises:
            OffsetOutOfRangeError: Records from ``start`` on were deleted.
        """
        ...

    def read_columns(
        self, partition: TopicPartition, start: int, end: int, /
    ) -> Iterator[RecordColumns]:
        """Yield the records of `read` in columns, which is faster."""
        ...

    def read_ranges(self, ranges: Iterable[OffsetRange], /) -> Iterator[PartitionColumns]:
        """Yield the records of several ranges, one range per partition, in columns.

        Each partition is read in order to the end of its range; partitions come in any order.

        Raises:
            OffsetOutOfRangeError: Records of one of them were deleted.
        """
        ...

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        ...

    def end_offsets(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        """Return the offset after the last committed record of each partition.

        A broker may count a commit with a short delay.
        """
        ...

    def uncommitted_ends(
        self, partitions: Iterable[TopicPartition], /
    ) -> dict[TopicPartition, int]:
        """Return the end of each partition, with open transactions and ends of transactions."""
        ...

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], /
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a timestamp, if there is one."""
        ...

    def delete_records(self, offsets: Mapping[TopicPartition, int], /) -> None:
        """Delete the records of each partition before an offset."""

    def append(self, records: Iterable[RawRecord], /) -> list[RecordMetadata]:
        """Write records, and return the offset of each. Each needs its partition.

        All are written when this returns, and some may be when it raises; use a `transaction` to
        write all or none. Kafka's client cannot write the timestamp 0, and writes 1 in its place.

        Raises:
            RecordRefusedError: A record is too large, or has no key in a compacted topic. Its
                ``taken`` has the indexes of the records that were written with none missing before
                them in their partition. Only the others must be written again.
        """
        ...

    def refusals(self, records: Iterable[RawRecord], /) -> list[tuple[int, RecordRefusedError]]:
        """Return the records that the log is certain to refuse: their indexes, and why.

        Nothing is written to their topics. Kafka may refuse other compressed records, if it lets
        this client create no topic to try them in.
        """
        ...

    def transaction(
        self, transactional_id: str, /, *, timeout_ms: int | None = None, size: int = 0
    ) -> AbstractContextManager[LogTransaction]:
        """Open a transaction; it commits at the end of the ``with`` block, or aborts if that fails.

        Entering fences every earlier transaction of the same id: an open one is aborted, and ends
        in a `ProducerFencedError`. Offsets read after that are final. If nothing was added, nothing
        is written.

        Args:
            transactional_id: The id to fence.
            timeout_ms: How long a broker waits for the end after the first append; by default
                ``transaction.timeout.ms``, or long enough for ``size`` if that is not set.
            size: About how many bytes will be appended.
        """
        ...

    def fence_producers(self, transactional_ids: Iterable[str], /) -> None:
        """Fence the producers of transactional ids, and abort their open transactions."""

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        """Commit offsets of a group without members.

        Raises:
            GroupNotEmptyError: The group has members.
        """

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, /
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group, for all partitions or for some.

        Waits for open transactions that commit one of them.
        """
        ...

    def list_groups(self) -> list[str]:
        """Return the names of all groups, sorted."""
        ...

    def describe_group(self, group: str, /) -> Sequence[MemberDescription]:
        """Return the members of a group; a group that does not exist has none."""
        ...

    def delete_group(self, group: str, /) -> None:
        """Delete a group and its offsets, if it exists.

        Raises:
            GroupNotEmptyError: The group has members.
        """

    def close(self) -> None:
        """Close files and connections."""
