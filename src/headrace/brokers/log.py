"""TopicLog: what topics are to Headrace, whether Kafka keeps them or a file does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import repeat
from typing import NamedTuple, Protocol, TypeAlias

from headrace.records import (
    NO_HEADERS,
    ConsumerRecord,
    Headers,
    ProducerRecord,
    RecordMetadata,
    headers_of,
)

CHUNK_RECORDS = 5_000
"""How many records are read at once: more do not stay in the processor's cache."""

CHUNK_BYTES = 8 << 20
"""How many bytes are read at once, unless one record alone has more."""

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
    """The offset a group goes on at, with a text of its own."""

    offset: int
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """An offset, with the timestamp of the record there."""

    offset: int
    timestamp: int


class RecordColumns(NamedTuple):
    """Records of one partition, a column each, so that nothing is made per record."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers] | None
    """None if no record has any."""

    def size(self) -> int:
        """Return how many bytes the records have."""
        size = sum(map(len, filter(None, self.values))) + sum(map(len, filter(None, self.keys)))
        if self.headers is not None:
            size += sum(
                len(name) + len(value or b"") for each in self.headers for name, value in each
            )
        return size


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
    """A topic as it is."""

    topic: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """What was set for this topic, by Kafka's names; the rest is the broker's."""


@dataclass(frozen=True)
class MemberDescription:
    """One consumer of a group."""

    member_id: str
    client_id: str
    partitions: tuple[TopicPartition, ...] = ()
    """What it reads."""


class LeadershipKind(Enum):
    """How a log chooses the process that runs an application."""

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


class TopicLog(Protocol):
    """Topics, their records, and how far groups have read.

    Reading is ``read_committed``: what an open or aborted transaction wrote is never seen, and the
    end of a partition is its last stable offset. Offsets grow but may have holes, so ranges are
    never counted. Whatever waits for a broker gives up after a while, with a `BrokerError`.
    """

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine reach it."""
        ...

    @property
    def creates_topics(self) -> bool:
        """Whether an application creates the missing topics that it writes to; else you do."""
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
                ``replication.factor``, which a file has no use for; -1 leaves it to the broker.

        Raises:
            TopicExistsError: It is there already.
        """

    def delete_topic(self, topic: str, /) -> None:
        """Delete a topic with its records, and what groups committed for it."""

    def grow_topic(self, topic: str, /, *, partitions: int) -> None:
        """Add partitions to a topic until it has ``partitions``; records stay where they are."""

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted; without those that a broker keeps for itself."""
        ...

    def partition_count(self, topic: str, /) -> int:
        """Return how many partitions a topic has.

        Raises:
            UnknownTopicError: There is no such topic; the error knows the nearest names.
        """
        ...

    def topic_ids(self, topics: Iterable[str], /) -> dict[str, str]:
        """Return what tells each topic from every other, also from one that had its name before.

        Raises:
            UnknownTopicError: One of them is not there.
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
            OffsetOutOfRangeError: Records from ``start`` on are no longer there.
        """
        ...

    def read_columns(
        self, partition: TopicPartition, start: int, end: int, /
    ) -> Iterator[RecordColumns]:
        """Yield what `read` yields, in columns: for those who read very many."""
        ...

    def read_ranges(self, ranges: Iterable[OffsetRange], /) -> Iterator[PartitionColumns]:
        """Yield what `read_columns` yields, of several ranges together.

        Each partition is read in order, and to the end of its range; which comes when is not said.

        Args:
            ranges: What to read, of each partition one range.

        Raises:
            OffsetOutOfRangeError: Records of one of them are no longer there.
        """
        ...

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that may still hold a record."""
        ...

    def end_offsets(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        """Return the offset after the last committed record of each partition.

        A broker may take a moment before it counts what was just committed.
        """
        ...

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], /
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a timestamp, if there is one."""
        ...

    def delete_records(self, offsets: Mapping[TopicPartition, int], /) -> None:
        """Let each partition begin at an offset: what lies before it is gone."""

    def append(self, records: Iterable[RawRecord], /) -> list[RecordMetadata]:
        """Write records, and return where each went. Each needs its partition.

        All are written when this returns. Kafka's client cannot write the timestamp 0, and writes
        1 in its place. Where it raises, some may have been: what must not
        appear in part belongs in a `transaction`.

        Raises:
            RecordRefusedError: A record is too large, or has no key in a compacted topic. Its
                ``taken`` has the places of those that were written with none missing before them in
                their partition: only the others are to be written again.
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
            transactional_id: Who writes.
            timeout_ms: How long a broker waits for the end once something was appended; left out:
                ``transaction.timeout.ms``, or long enough for ``size`` if nobody says.
            size: About how many bytes will be appended.
        """
        ...

    def fence_producers(self, transactional_ids: Iterable[str], /) -> None:
        """Take over transactional ids: what is open of them is aborted, and its producer fenced."""

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        """Say how far a group without members has come.

        Raises:
            GroupNotEmptyError: The group has members, who commit themselves.
        """

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, /
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a group committed, of all partitions or of some; the others are left out.

        A transaction that is about to commit one of them is waited for.
        """
        ...

    def list_groups(self) -> list[str]:
        """Return the names of all groups, sorted."""
        ...

    def describe_group(self, group: str, /) -> Sequence[MemberDescription]:
        """Return the members of a group; a group that does not exist has none."""
        ...

    def delete_group(self, group: str, /) -> None:
        """Forget a group and its offsets; nothing happens if there is none.

        Raises:
            GroupNotEmptyError: The group has members.
        """

    def close(self) -> None:
        """Let go of files and connections."""
