"""KafkaLog: topics in Kafka, brokers 3.x and 4.x."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headrace.brokers.kafka.admin import KafkaAdmin
from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.consumer import KafkaConsumerSession
from headrace.brokers.kafka.following import KafkaFollower
from headrace.brokers.kafka.groups import KafkaGroups
from headrace.brokers.kafka.producer import KafkaProducerSession
from headrace.brokers.kafka.reading import KafkaReader
from headrace.brokers.kafka.refusals import refusals
from headrace.brokers.kafka.topics import KafkaTopics
from headrace.brokers.kafka.transactions import KafkaTransaction, fence_producers
from headrace.brokers.kafka.writing import KafkaWriter
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
from headrace.config import StreamsConfig
from headrace.errors import RecordRefusedError
from headrace.records import ConsumerRecord, RecordMetadata


class KafkaLog:
    """A `TopicLog` over Kafka's client. Connects at its first request."""

    is_local = creates_topics = False

    def __init__(self, config: StreamsConfig) -> None:
        self.address = config.bootstrap_servers or ""
        self._client_factory = ClientFactory(config)
        self._admin = KafkaAdmin(self._client_factory)
        self._topics = KafkaTopics(self._client_factory, self._admin)
        self._groups = KafkaGroups(self._client_factory, self._admin, self._topics)
        self._reader = KafkaReader(self._client_factory, self._topics)
        self._writer = KafkaWriter(self._client_factory, self._topics)

    def cluster_id(self) -> str:
        return self._admin.cluster_id()

    def leadership(self) -> LeadershipKind:
        return LeadershipKind.GROUP

    def create_topic(
        self, topic: str, /, *, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        self._topics.create(topic, partitions, settings or {})

    def delete_topic(self, topic: str, /) -> None:
        self._topics.delete(topic)

    def grow_topic(self, topic: str, /, *, partitions: int) -> None:
        self._topics.grow(topic, partitions)

    def alter_topic(self, topic: str, /, settings: Mapping[str, str | None]) -> None:
        self._topics.alter(topic, settings)

    def list_topics(self) -> list[str]:
        return self._admin.topics()

    def partition_count(self, topic: str, /) -> int:
        return self._topics.count(topic)

    def topic_ids(self, topics: Iterable[str], /) -> dict[str, str]:
        return self._topics.ids(topics)

    def describe_topic(self, topic: str, /) -> TopicDescription:
        return self._topics.describe(topic)

    def read(
        self, partition: TopicPartition, start: int, end: int, /
    ) -> Iterator[list[ConsumerRecord]]:
        for columns in self.read_columns(partition, start, end):
            yield records_from_columns(partition, columns)

    def read_columns(
        self, partition: TopicPartition, start: int, end: int, /
    ) -> Iterator[RecordColumns]:
        for _, columns in self._reader.read_ranges([(partition, start, end)]):
            yield columns

    def read_ranges(self, ranges: Iterable[OffsetRange], /) -> Iterator[PartitionColumns]:
        return self._reader.read_ranges(ranges)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> dict[TopicPartition, int]:
        return self._topics.log_start_offsets(partitions)

    def end_offsets(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        return self._topics.end_offsets(partitions)

    def uncommitted_ends(
        self, partitions: Iterable[TopicPartition], /
    ) -> dict[TopicPartition, int]:
        return self._topics.uncommitted_ends(partitions)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], /
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._topics.offsets_for_times(timestamps)

    def delete_records(self, offsets: Mapping[TopicPartition, int], /) -> None:
        self._topics.delete_records(offsets)

    def append(self, records: Iterable[RawRecord], /) -> list[RecordMetadata]:
        return self._writer.append(records)

    def refusals(self, records: Iterable[RawRecord], /) -> list[tuple[int, RecordRefusedError]]:
        return refusals(self._writer, records)

    def transaction(
        self, transactional_id: str, /, *, timeout_ms: int | None = None, size: int = 0
    ) -> KafkaTransaction:
        if timeout_ms is None:
            timeout_ms = self._writer.transaction_timeout_ms(size)
        return KafkaTransaction(self._writer, self._groups, transactional_id, timeout_ms)

    def fence_producers(self, transactional_ids: Iterable[str], /) -> None:
        fence_producers(self._writer, transactional_ids)

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        self._groups.commit(group, offsets)

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, /
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._groups.committed(group, partitions)

    def list_groups(self) -> list[str]:
        return self._groups.names()

    def describe_group(self, group: str, /) -> Sequence[MemberDescription]:
        return self._groups.members(group)

    def delete_group(self, group: str, /) -> None:
        self._groups.delete(group)

    def open_producer(self, settings: Mapping[str, str], /) -> KafkaProducerSession:
        return KafkaProducerSession(self._writer, self._admin, settings)

    def open_consumer(
        self, group: str | None, settings: Mapping[str, str], /
    ) -> KafkaConsumerSession:
        return KafkaConsumerSession(self._client_factory, group, settings)

    def open_follower(self) -> KafkaFollower:
        return KafkaFollower(self._client_factory, self._topics)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
        self._groups.close()
