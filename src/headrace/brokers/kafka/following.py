"""Reading Kafka's partitions as they grow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.error_translation import RETRIABLE, UNKNOWN_TOPIC
from headrace.brokers.kafka.reading import message_runs
from headrace.brokers.kafka.records import columns_from_messages
from headrace.brokers.kafka.topics import KafkaTopics
from headrace.brokers.log import CHUNK_RECORDS, TopicPartition
from headrace.brokers.sessions import PartitionNews
from headrace.errors import BrokerError

_SLICE = 0.05
"""How long a call of the client waits at most: it cannot be interrupted."""
_RETRY_SECONDS = 1.0
"""When a partition is read again whose end lies before the position."""
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class KafkaFollower:
    """A `Follower` over librdkafka's consumer, which fetches in the background."""

    def __init__(self, client_factory: ClientFactory, topics: KafkaTopics) -> None:
        self._failures = client_factory.failures
        self._topics = topics
        self._positions: dict[TopicPartition, int] = {}
        self._known: set[str] = set()
        """The topics whose leaders were fetched."""
        self._again: dict[TopicPartition, float] = {}
        """When to read a partition again."""
        self._consumer: Consumer = client_factory.consumer(
            group_id="headrace-follower",  # never joined: librdkafka asks for a name
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            isolation_level="read_committed",
            auto_offset_reset="error",
            fetch_queue_backoff_ms=2,
            # The broker answers at once if there is a record, and else the end shows this late.
            fetch_wait_max_ms=50,
            fetch_error_backoff_ms=100,
            queued_min_messages=20 * CHUNK_RECORDS,
            queued_max_messages_kbytes=32 << 10,
            # It also bounds a batch that zstd expands; above it the client returns no record.
            receive_message_max_bytes=2**31 - 1,
        )

    def follow(self, partition: TopicPartition, offset: int, /) -> None:
        if partition.topic not in self._known:
            # Otherwise the client would fetch its leaders by a timer, once a second.
            self._fetch_leaders(partition.topic)
        self.leave(partition)
        self._positions[partition] = offset
        self._consumer.incremental_assign([ClientPartition(*partition, offset)])

    def leave(self, partition: TopicPartition, /) -> None:
        self._again.pop(partition, None)
        if self._positions.pop(partition, None) is not None:
            self._consumer.incremental_unassign([ClientPartition(*partition)])

    def poll(self, seconds: float, /) -> list[PartitionNews]:
        now = time.monotonic()
        for name in [name for name, due in self._again.items() if due <= now]:
            self.follow(name, self._positions[name])
        # `consume` waits until it has all records, so wait for the first one alone.
        first = self._consumer.poll(min(seconds, _SLICE))
        if first is None:
            return []
        messages: list[Any] = [first, *self._consumer.consume(CHUNK_RECORDS - 1, 0)]
        news: list[PartitionNews] = []
        for name, run in message_runs(messages):
            if name in self._positions:
                news += self._news(name, run)
            else:
                self._check_stray(run)
        return news

    def close(self) -> None:
        self._consumer.close()

    def _fetch_leaders(self, topic: str) -> None:
        with suppress(KafkaException):  # the client finds them later
            self._consumer.list_topics(topic, timeout=self._failures.attempt_timeout)
            self._known.add(topic)

    def _news(self, name: TopicPartition, messages: list[Any]) -> Iterator[PartitionNews]:
        if not any(map(Message.error, messages)):
            yield from self._read(name, messages)
            return
        records: list[Any] = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
                continue
            yield from self._read(name, records)
            records = []
            if error.code() == KafkaError._PARTITION_EOF:
                self._positions[name] = max(self._positions[name], message.offset())
                yield PartitionNews(name, None, message.offset())
            elif error.code() in _GONE:
                yield from self._moved(name)
            elif error.code() in UNKNOWN_TOPIC:
                self._known.discard(name.topic)
            elif error.code() not in RETRIABLE:
                doing = f"read topic {name.topic!r}"
                raise self._failures.streams_error_from(error, doing, topic=name.topic)
        yield from self._read(name, records)

    def _read(self, name: TopicPartition, records: list[Any]) -> Iterator[PartitionNews]:
        if records:
            self._positions[name] = records[-1].offset() + 1
            yield PartitionNews(name, columns_from_messages(records), None)

    def _moved(self, name: TopicPartition) -> Iterator[PartitionNews]:
        """Continue where the partition begins, or wait if it ends before the position."""
        position = self._positions[name]
        try:
            start = self._topics.log_start_offsets([name])[name]
            end = self._topics.end_offsets([name])[name]
        except BrokerError:
            self._again[name] = time.monotonic() + _RETRY_SECONDS
            return
        if position < start:
            self.follow(name, start)
        else:
            self._again[name] = time.monotonic() + _RETRY_SECONDS
            if end < position:
                yield PartitionNews(name, None, end)

    def _check_stray(self, messages: list[Any]) -> None:
        """Raise an error that names no partition, unless the client retries by itself."""
        for message in messages:
            error = message.error()
            if message.topic() is None and error is not None and error.code() not in RETRIABLE:
                raise self._failures.streams_error_from(error, "read")
