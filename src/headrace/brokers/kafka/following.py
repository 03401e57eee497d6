"""Reading Kafka's partitions as they grow."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
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
from headrace.errors import BrokerError, StreamsError

_log = logging.getLogger("headrace.brokers.kafka")

_SLICE = 0.05
"""How long a call of the client waits at most: it cannot be interrupted."""
_RETRY_SECONDS = 1.0
"""When a partition is read again whose end lies before the position."""
_CHECK_SECONDS = 5.0
"""How often the ends of partitions are checked of which nothing comes."""
_GONE = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._LOG_TRUNCATION,
}


class KafkaFollower:
    """A `Follower` over librdkafka's consumer, which fetches in the background.

    After a broker is lost, the client may fetch a partition no longer, and report nothing. So the
    ends of silent partitions are checked, and if one holds more, a new client takes over.
    """

    def __init__(self, client_factory: ClientFactory, topics: KafkaTopics) -> None:
        self._failures = client_factory.failures
        self._topics = topics
        self._positions: dict[TopicPartition, int] = {}
        self._known: set[str] = set()
        """The topics whose leaders were fetched."""
        self._again: dict[TopicPartition, float] = {}
        """When to read a partition again."""
        self._check = _EndsCheck(topics)
        self._open = partial(_open_consumer, client_factory)
        self._consumer = self._open()

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
        news = self._polled(seconds)
        if stuck := self._check.stuck(self._positions, time.monotonic()):
            _log.debug("Nothing comes of %s although there is more: a new client reads.", stuck)
            self._reopen()
        return news

    def close(self) -> None:
        self._consumer.close()

    def _polled(self, seconds: float) -> list[PartitionNews]:
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

    def _reopen(self) -> None:
        # Closing it may wait for a broker that is away.
        threading.Thread(target=self._consumer.close, daemon=True).start()
        self._consumer = self._open()
        positions = [ClientPartition(*name, offset) for name, offset in self._positions.items()]
        self._consumer.incremental_assign(positions)

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


def _open_consumer(client_factory: ClientFactory) -> Consumer:
    return client_factory.assigned_consumer(
        "headrace-follower",
        # The broker answers at once if there is a record, and else the end shows this late.
        fetch_wait_max_ms=50,
        fetch_error_backoff_ms=100,
        queued_min_messages=20 * CHUNK_RECORDS,
    )


class _EndsCheck:
    """Finds partitions that hold more than was read of them, twice with nothing in between.

    A broker that is away takes its time to answer, so a thread of its own asks for the ends.
    """

    def __init__(self, topics: KafkaTopics) -> None:
        self._topics = topics
        self._due = 0.0
        self._asked: dict[TopicPartition, int] = {}
        """The positions at the last check."""
        self._suspects: dict[TopicPartition, int] = {}
        """The positions of partitions that held more, as the thread has found."""
        self._thread: threading.Thread | None = None

    def stuck(self, positions: Mapping[TopicPartition, int], now: float) -> list[TopicPartition]:
        """Return the partitions of which nothing comes, if a check is due."""
        if now < self._due or (self._thread is not None and self._thread.is_alive()):
            return []
        self._due = now + _CHECK_SECONDS
        suspects, self._suspects = self._suspects, {}
        stuck = [name for name, position in suspects.items() if positions.get(name) == position]
        silent = {
            name: position
            for name, position in positions.items()
            if self._asked.get(name) == position and name not in stuck
        }
        self._asked = dict(positions)
        if silent:
            self._thread = threading.Thread(target=self._ask, args=(silent,), daemon=True)
            self._thread.start()
        return stuck

    def _ask(self, silent: Mapping[TopicPartition, int]) -> None:
        with suppress(StreamsError):
            ends = self._topics.end_offsets(silent)
            self._suspects = {
                name: position for name, position in silent.items() if ends[name] > position
            }
