"""Reading ranges of Kafka's partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.error_translation import RETRIABLE, UNKNOWN_TOPIC
from headrace.brokers.kafka.records import columns_from_messages
from headrace.brokers.kafka.topics import KafkaTopics
from headrace.brokers.log import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    OffsetRange,
    PartitionColumns,
    RecordColumns,
    TopicPartition,
)
from headrace.errors import (
    BrokerError,
    BrokerUnavailableError,
    OffsetOutOfRangeError,
    StreamsError,
)
from headrace.records import NO_HEADERS

_SLICE = 0.2
_STALLED_SECONDS = 1.0
"""After this time without progress the reader checks whether the topic still exists."""

_HELD_BYTES = 4 * CHUNK_BYTES
"""The most bytes of all ranges together that wait for a full chunk."""

_FIRST_RECORDS = 100
"""How many records are fetched at first, before the reader has seen how large they are."""

_METADATA_SECONDS = 300.0
"""How long the client surely caches the leaders of a topic: a third of its default."""

_FEW_TOPICS = 8
"""Up to this number of topics are requested one by one, more as the list of all topics."""

_MAX_IDLE = 4
"""How many consumers stay open between ranges; each has threads and connections of its own."""

_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


@dataclass
class _Opened:
    """A consumer that stays open between ranges."""

    client: Consumer
    metadata: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By topic: when its metadata was fetched, and how many partitions it had."""


@dataclass
class _Range:
    """The progress of reading one range."""

    name: TopicPartition
    position: int
    end: int
    gathered: RecordColumns | None = None
    """Records that are not yielded yet."""
    size: int = 0
    """The bytes of those records."""

    @property
    def count(self) -> int:
        """Return how many records are not yielded yet."""
        return 0 if self.gathered is None else len(self.gathered.offsets)

    def add(self, messages: list[Any]) -> None:
        """Add messages to the records that are not yielded yet."""
        columns = columns_from_messages(messages)
        self.size += columns.size()
        self.gathered = columns if self.gathered is None else _joined(self.gathered, columns)

    def take(self) -> Iterator[RecordColumns]:
        """Return the records that are not yielded yet, in pieces that are not too large."""
        gathered, size = self.gathered, self.size
        self.gathered, self.size = None, 0
        return iter(()) if gathered is None else gathered.pieces(size)


class KafkaReader:
    """Reads ranges of offsets, with consumers that stay open between them."""

    def __init__(self, client_factory: ClientFactory, topics: KafkaTopics) -> None:
        self._client_factory = client_factory
        self._failures = client_factory.failures
        self._topics = topics
        self._idle: list[_Opened] = []

    def read_ranges(self, ranges: Iterable[OffsetRange]) -> Iterator[PartitionColumns]:
        """Yield the committed records of ranges, a chunk of one partition at a time."""
        left = {name: _Range(name, start, end) for name, start, end in ranges if start < end}
        if not left:
            return
        opened = self._idle.pop() if self._idle else _Opened(self._open())
        try:
            self._fetch_metadata(opened, left)
            self._topics.check_partitions(left)
            opened.client.assign(
                [ClientPartition(*range_.name, range_.position) for range_ in left.values()]
            )
            yield from self._read_assigned(opened.client, left)
        except (GeneratorExit, OffsetOutOfRangeError):
            opened.client.unassign()
            self._keep(opened)
            raise
        except BaseException:
            opened.client.close()
            raise
        self._keep(opened)

    def _keep(self, opened: _Opened) -> None:
        if len(self._idle) < _MAX_IDLE:
            self._idle.append(opened)
        else:
            opened.client.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().client.close()

    def _fetch_metadata(self, opened: _Opened, names: Iterable[TopicPartition]) -> None:
        """Fetch the leaders of topics that are new to a consumer.

        Otherwise the client would fetch them by a timer, once a second.
        """
        now = time.monotonic()
        new = set()
        for topic, number in names:
            when, count = opened.metadata.get(topic, (-_METADATA_SECONDS, 0))
            if number >= count or now - when >= _METADATA_SECONDS:
                new.add(topic)
        described: dict[str, Any] = {}
        try:
            requests: Iterable[str | None] = new if len(new) <= _FEW_TOPICS else [None]
            for request in requests:
                ask = partial(opened.client.list_topics, request)
                described |= self._failures.call_with_retries(ask).topics
        except KafkaException as error:
            opened.client.poll(0)
            raise self._failures.streams_error_from(error, "list its topics") from error
        for topic in new & described.keys():
            if described[topic].error is None:
                count = len(described[topic].partitions)
                opened.metadata[topic] = now, count
                self._topics.counts[topic] = count

    def _open(self) -> Consumer:
        return self._client_factory.assigned_consumer(
            "headrace-reader",
            # The records of a range exist; only the fetch that reaches the end would wait.
            fetch_wait_max_ms=2,
            # Enough to keep up; records behind the end of a range are discarded.
            queued_min_messages=CHUNK_RECORDS,
            fetch_message_max_bytes=512 << 10,
        )

    def _read_assigned(
        self, consumer: Consumer, left: dict[TopicPartition, _Range]
    ) -> Iterator[PartitionColumns]:
        # All messages belong to a partition that is read alone.
        alone = next(iter(left.values())) if len(left) == 1 else None
        room = _FIRST_RECORDS
        progress = time.monotonic()
        while left:
            messages = _polled(consumer, max(1, room - (alone.count if alone else 0)))
            runs = [(alone.name, messages)] if alone and messages else message_runs(messages)
            ended: list[_Range] = []
            if self._gather_all(consumer, runs, left, ended):
                progress = time.monotonic()
            else:
                self._judge_silence(time.monotonic() - progress, left)
            if not left:
                # The caller may hold the last records for long.
                consumer.unassign()
            held = sum(range_.size for range_ in left.values())
            for range_ in (*ended, *left.values()):
                count, size = range_.count, range_.size
                if not count:
                    continue
                # Fetch large records in smaller numbers from here on.
                room = max(1, min(CHUNK_RECORDS, CHUNK_BYTES * count // size))
                if count >= room or range_.position >= range_.end or held >= _HELD_BYTES:
                    for chunk in range_.take():
                        yield range_.name, chunk

    def _gather_all(
        self,
        consumer: Consumer,
        runs: Iterable[tuple[TopicPartition, list[Any]]],
        left: dict[TopicPartition, _Range],
        ended: list[_Range],
    ) -> bool:
        """Add messages to their ranges, and return whether a range has advanced."""
        has_moved = False
        surplus: list[ClientPartition] = []
        for name, run in runs:
            range_ = left.get(name)
            if range_ is None:
                self._check_stray(run, left)
                continue
            reached = self._gather(run, range_)
            has_moved |= reached > range_.position
            range_.position = reached
            if reached >= range_.end:
                ended.append(left.pop(name))
                if run[-1].offset() >= range_.end and run[-1].error() is None:
                    surplus.append(ClientPartition(*name))
        if surplus and left:
            # Do not fetch behind a finished range. A paused partition would stay paused when it is
            # assigned again.
            consumer.incremental_unassign(surplus)
        return has_moved

    def _gather(self, messages: list[Any], into: _Range) -> int:
        """Add the records of a range to it, and return the offset that is reached."""
        position, end = into.position, into.end
        if not any(map(Message.error, messages)) and messages[-1].offset() < end:
            within = messages
            position = int(messages[-1].offset()) + 1
        else:
            within = []
            for message in messages:
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._judge(error, into.name, position)
                    continue
                offset = message.offset()
                # The end of the partition counts too: a range may end in a transaction's marker.
                if error is not None or offset >= end:
                    position = max(position, offset)
                else:
                    within.append(message)
                    position = offset + 1
                if position >= end:
                    break
        if within:
            into.add(within)
        return position

    def _check_stray(self, messages: list[Any], left: dict[TopicPartition, _Range]) -> None:
        """Raise an error that names no partition; discard messages behind a range."""
        for message in messages:
            if message.topic() is None and message.error() is not None and left:
                first = next(iter(left.values()))
                self._judge(message.error(), first.name, first.position)

    def _judge(self, error: KafkaError, name: TopicPartition, position: int) -> None:
        """Raise an error that the client does not retry; the others show as silence."""
        if error.code() in UNKNOWN_TOPIC:
            self._topics.recheck_partitions([name])
        elif error.code() not in RETRIABLE:
            raise self._failed(error, name, position)

    def _judge_silence(self, seconds: float, left: Mapping[TopicPartition, _Range]) -> None:
        if seconds > _STALLED_SECONDS:
            self._topics.recheck_partitions(left)
        if seconds > self._failures.timeout:
            first = next(iter(left.values()))
            msg = (
                f"The broker at {self._failures.servers} sent nothing of {first.name.topic!r}, "
                f"partition {first.name.partition}, from offset {first.position} on for "
                f"{self._failures.timeout:g} s, though {first.end} was requested. "
                "Check the broker, and that the range lies before the end."
            )
            raise BrokerUnavailableError(msg)

    def _failed(self, error: KafkaError, name: TopicPartition, position: int) -> StreamsError:
        if error.code() in _GONE:
            start = self._topics.log_start_offsets([name])[name]
            if position < start:
                return OffsetOutOfRangeError(*name, offset=position, beginning=start)
            return BrokerError(
                f"Offset {position} of {name.topic!r}, partition {name.partition}, lies behind "
                "the end of the partition. Ask for offsets that were written."
            )
        doing = f"read topic {name.topic!r}"
        return self._failures.streams_error_from(KafkaException(error), doing, topic=name.topic)


def _polled(consumer: Consumer, limit: int) -> list[Any]:
    """Wait for the first message and return it with all that have arrived."""
    first = consumer.poll(_SLICE)
    if first is None:
        return []
    return [first, *consumer.consume(limit - 1, 0)] if limit > 1 else [first]


def message_runs(messages: list[Any]) -> Iterator[tuple[TopicPartition, list[Any]]]:
    """Yield messages in lists of one partition each, as they follow each other."""
    topic: Any
    number: Any
    for topic, of_topic in groupby(messages, Message.topic):
        for number, run in groupby(of_topic, Message.partition):
            yield TopicPartition(topic, number), list(run)


def _joined(first: RecordColumns, second: RecordColumns) -> RecordColumns:
    """Return the records of both, in one piece."""
    headers = None
    if first.headers is not None or second.headers is not None:
        headers = [
            each
            for columns in (first, second)
            for each in columns.headers or [NO_HEADERS] * len(columns.offsets)
        ]
    return RecordColumns(
        first.offsets + second.offsets,
        first.timestamps + second.timestamps,
        first.keys + second.keys,
        first.values + second.values,
        headers,
    )
