"""EmbeddedLog: topics in one SQLite file, for a laptop, a demo or a test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from headrace.brokers.embedded import groups, log_cleaner, reading, topics, writing
from headrace.brokers.embedded.consumer import EmbeddedConsumer
from headrace.brokers.embedded.database import BUSY_MS, Database
from headrace.brokers.embedded.following import EmbeddedFollower
from headrace.brokers.embedded.offsets import commit, committed
from headrace.brokers.embedded.producer import EmbeddedProducer
from headrace.brokers.embedded.writing import EmbeddedTransaction
from headrace.brokers.log import (
    LeadershipKind,
    MemberDescription,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetRange,
    PartitionColumns,
    RawRecord,
    RecordColumns,
    TopicDescription,
    TopicPartition,
    records_from_columns,
)
from headrace.errors import BrokerError, RecordRefusedError
from headrace.records import ConsumerRecord, RecordMetadata


class EmbeddedLog:
    """A `TopicLog` in a file that several processes of one machine may share.

    A transaction of the log is a transaction of the file, so nothing uncommitted is ever in it and
    the last stable offset is the end.

    Args:
        path: The file; it and its folder are created if they are missing.
        busy_ms: How long a writer waits for another one.
    """

    is_local = creates_topics = True

    def __init__(self, path: str | Path, *, busy_ms: int = BUSY_MS) -> None:
        self.path = Path(path)
        self.address = str(self.path)
        self._busy_ms = busy_ms
        self._database = Database(self.path, busy_ms=busy_ms)

    def cluster_id(self) -> str:
        return "embedded"

    def leadership(self) -> LeadershipKind:
        return LeadershipKind.DIRECTORY_LOCK

    def create_topic(
        self, topic: str, /, *, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        with self._database.writing() as file:
            topics.create_topic(file, topic, partitions, settings or {})

    def delete_topic(self, topic: str, /) -> None:
        with self._database.writing() as file:
            topics.delete_topic(file, topic)

    def grow_topic(self, topic: str, /, *, partitions: int) -> None:
        with self._database.writing() as file:
            topics.grow_topic(file, topic, partitions)

    def alter_topic(self, topic: str, /, settings: Mapping[str, str | None]) -> None:
        with self._database.writing() as file:
            topics.alter_topic(file, topic, settings)

    def list_topics(self) -> list[str]:
        with self._database.reading() as file:
            return topics.list_topics(file)

    def partition_count(self, topic: str, /) -> int:
        with self._database.reading() as file:
            return topics.partition_count(file, topic)

    def topic_ids(self, names: Iterable[str], /) -> dict[str, str]:
        with self._database.reading() as file:
            return {topic: topics.topic_uuid(file, topic) for topic in names}

    def describe_topic(self, topic: str, /) -> TopicDescription:
        with self._database.reading() as file:
            return topics.describe_topic(file, topic)

    def read(
        self, partition: TopicPartition, start: int, end: int, /
    ) -> Iterator[list[ConsumerRecord]]:
        for columns in reading.read_columns(self._database, partition, start, end):
            yield records_from_columns(partition, columns)

    def read_columns(
        self, partition: TopicPartition, start: int, end: int, /
    ) -> Iterator[RecordColumns]:
        return reading.read_columns(self._database, partition, start, end)

    def read_ranges(self, ranges: Iterable[OffsetRange], /) -> Iterator[PartitionColumns]:
        for partition, start, end in ranges:
            for columns in reading.read_columns(self._database, partition, start, end):
                yield partition, columns

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> dict[TopicPartition, int]:
        with self._database.reading() as file:
            return {name: topics.find_partition(file, name).log_start_offset for name in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        with self._database.reading() as file:
            return {name: topics.find_partition(file, name).end_offset for name in partitions}

    uncommitted_ends = end_offsets

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], /
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._database.reading() as file:
            return {name: reading.first_at(file, name, time) for name, time in timestamps.items()}

    def delete_records(self, offsets: Mapping[TopicPartition, int], /) -> None:
        with self._database.writing() as file:
            for name, offset in offsets.items():
                partition = topics.find_partition(file, name)
                if not 0 <= offset <= partition.end_offset:
                    msg = (
                        f"{name} cannot begin at {offset}: it ends at {partition.end_offset}. "
                        "Use an offset up to there."
                    )
                    raise BrokerError(msg)
                log_cleaner.delete_before(file, partition, offset)

    def append(self, records: Iterable[RawRecord], /) -> list[RecordMetadata]:
        return writing.write(self._database, records)

    def refusals(self, records: Iterable[RawRecord], /) -> list[tuple[int, RecordRefusedError]]:
        with self._database.reading() as file:
            return writing.refusals(file, records)

    def transaction(
        self, transactional_id: str, /, *, timeout_ms: int | None = None, size: int = 0
    ) -> EmbeddedTransaction:
        # Nothing is open before the end of the block, so there is nothing to time out.
        return EmbeddedTransaction(self._database, transactional_id)

    def fence_producers(self, transactional_ids: Iterable[str], /) -> None:
        for transactional_id in transactional_ids:
            writing.take_over(self._database, transactional_id)

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        with self._database.writing() as file:
            groups.check_empty(file, group, writing.now_ms())
            commit(file, group, offsets)

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, /
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        with self._database.reading() as file:
            return committed(file, group, partitions)

    def list_groups(self) -> list[str]:
        with self._database.reading() as file:
            return groups.list_groups(file)

    def describe_group(self, group: str, /) -> Sequence[MemberDescription]:
        with self._database.reading() as file:
            return groups.describe_group(file, group, writing.now_ms())

    def delete_group(self, group: str, /) -> None:
        with self._database.writing() as file:
            groups.check_empty(file, group, writing.now_ms())
            groups.delete_group(file, group)

    def clean(self) -> None:
        """Compact and expire every topic now; appending does it from time to time."""
        with self._database.reading() as file:
            names = [
                TopicPartition(topic, number)
                for topic in topics.list_topics(file)
                for number in range(topics.partition_count(file, topic))
            ]
        for name in names:
            with self._database.writing() as file:
                log_cleaner.clean_partition(file, name, writing.now_ms())

    def open_producer(self, settings: Mapping[str, str], /) -> EmbeddedProducer:
        # A producer may wait for other writers while its user continues.
        background = Database(self.path, busy_ms=self._busy_ms)
        return EmbeddedProducer(self._database, background, settings)

    def open_consumer(self, group: str | None, settings: Mapping[str, str], /) -> EmbeddedConsumer:
        # On its own connection a consumer sees whether others have written.
        return EmbeddedConsumer(Database(self.path, busy_ms=self._busy_ms), group, settings)

    def open_follower(self) -> EmbeddedFollower:
        # On its own connection it sees whether others have written.
        return EmbeddedFollower(Database(self.path, busy_ms=self._busy_ms))

    def close(self) -> None:
        self._database.close()
