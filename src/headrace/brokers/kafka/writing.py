"""Writing records to Kafka: every delivery is checked, alone or in transactions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.brokers.kafka.connecting import Connector
from headrace.brokers.kafka.failures import UNKNOWN_TOPIC, error_of, fatal_told
from headrace.brokers.kafka.topics import KafkaTopics, client_partitions
from headrace.brokers.log import Appended, OffsetAndMetadata, TopicPartition, producer_record
from headrace.errors import (
    AuthorizationError,
    BrokerError,
    RecordRefusedError,
    StreamsError,
    UnknownTopicError,
)
from headrace.records import NO_HEADERS, RecordMetadata

_PAUSE = 0.05
_SERVED_EVERY = 1_000
# What Kafka's format adds at most, in bytes.
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 36
# What is wrong with the record itself; everything else is wrong with the broker.
_REFUSALS = {
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
}


class KafkaWriter:
    """Writes records to partitions that are decided."""

    def __init__(self, connector: Connector, topics: KafkaTopics) -> None:
        self.connector = connector
        self.topics = topics
        self._failures = connector.failures
        self._groups: dict[str, Any] = {}
        self._opened: Producer | None = None
        self._opened_bytes = 0
        self._limits: dict[str, int] = {}
        """How large a batch may be for each topic that was written to."""
        self._doubted: set[str] = set()
        """Topics that refused something: they may take less than they did."""

    @property
    def batch_bytes(self) -> int:
        """How large the batches of a new producer may be.

        A topic refuses a batch that is larger than its ``max.message.bytes``, and librdkafka does
        not try it again in parts, as Java's producer does.
        """
        return min([self.connector.batch_bytes, *self._limits.values()])

    def append(self, records: Iterable[Appended]) -> list[RecordMetadata]:
        """Write records without a transaction, and return where each went."""
        records = list(records)
        for topic, number in {(record[0], record[1]) for record in records}:
            self.check_partition(topic, number)
        batch_bytes = self.batch_bytes
        if self._opened is None or self._opened_bytes > batch_bytes:
            self._opened = self.connector.producer(
                acks="all", enable_idempotence=True, batch_size=batch_bytes
            )
            self._opened_bytes = batch_bytes
            introduce(self._opened, self.connector)
        written: defaultdict[tuple[str, int | None], list[int]] = defaultdict(list)
        failed: list[StreamsError] = []

        def delivered(record: Appended, error: KafkaError | None, message: Any) -> None:
            if error is None:
                written[record[0], record[1]].append(message.offset())
            else:
                failed.append(self.undelivered(error, record))

        self.produce_all(self._opened, records, delivered, self._opened_bytes)
        self.flush(self._opened)
        if failed:
            raise failed[0]
        # A producer of Kafka's keeps the order inside a partition.
        offsets = {name: iter(sorted(found)) for name, found in written.items()}
        return [
            RecordMetadata(topic, number or 0, next(offsets[topic, number]))
            for topic, number, *_ in records
        ]

    def check_partition(self, topic: str, number: int | None) -> None:
        """Refuse a partition that does not exist: the client would make a topic, or wait."""
        if number is None:
            msg = f"A record for topic {topic!r} has no partition. Decide it before writing."
            raise BrokerError(msg)
        self.topics.check_partitions([TopicPartition(topic, number)])

    def produce_all(
        self,
        producer: Producer,
        records: Iterable[Appended],
        on_delivery: Callable[..., None],
        batch_bytes: int,
        failed: Sequence[object] = (),
    ) -> None:
        """Hand records to the client.

        Args:
            producer: The client.
            records: The records.
            on_delivery: f(record, error, message), called with what became of each.
            batch_bytes: How large the client's batches may become.
            failed: As for `flush`.
        """
        produce: Any = producer.produce
        known = self.topics.counts
        left = iter(records)
        # Made when a topic takes less than the client would send it at once.
        narrow: _NarrowBatches | None = None
        while batch := list(islice(left, _SERVED_EVERY)):
            if self._least_limit({record[0] for record in batch}) < batch_bytes and narrow is None:
                narrow = _NarrowBatches(self._limits, partial(self.flush, producer, failed=failed))
            for record in batch:
                if narrow is not None:
                    narrow.make_room(record)
                topic, number, timestamp, key, value, headers = record
                if number is None or not 0 <= number < known.get(topic, 0):
                    self.check_partition(topic, number)
                told = partial(on_delivery, record)
                if timestamp <= 0 or (headers is not NO_HEADERS and headers):
                    self.produce(producer, record, told)
                    continue
                try:
                    produce(topic, value, key, number, told, None, timestamp)
                except (BufferError, KafkaException):
                    self.produce(producer, record, told)
            self.serve(producer, 0)

    def produce(
        self, producer: Producer, record: Appended, on_delivery: Callable[..., None]
    ) -> None:
        """Hand a record to the client, waiting while its queue is full."""
        topic, number, timestamp, key, value, headers = record
        assert number is not None
        if timestamp < 0:
            reason = "its timestamp is negative."
            raise RecordRefusedError(producer_record(record), reason=reason)
        # librdkafka takes 0 for "now", which a replayed batch would write differently.
        timestamp = timestamp or 1
        told: Any = list(headers or ())
        deadline = time.monotonic() + self._failures.timeout
        while True:
            try:
                producer.produce(topic, value, key, number, on_delivery, None, timestamp, told)
            except BufferError as error:
                if time.monotonic() >= deadline:
                    timed_out = KafkaError(KafkaError._TIMED_OUT_QUEUE)
                    raise self._failures.translated(timed_out, "take more records") from error
                self.serve(producer, _PAUSE)
            except KafkaException as error:
                failure = error_of(error)
                is_new = failure.code() == KafkaError._UNKNOWN_PARTITION
                is_there = number < self.topics.counts.get(topic, 0)
                if not (is_new and is_there) or time.monotonic() > deadline:
                    raise self.undelivered(failure, record) from error
                # The topic has grown since the producer last asked.
                with suppress(KafkaException):
                    producer.list_topics(topic, timeout=self._failures.timeout)
            else:
                return

    def serve(self, producer: Producer, seconds: float) -> None:
        """Let a producer report what became of its records."""
        try:
            with fatal_told():
                producer.poll(seconds)
        except KafkaException as error:
            raise self._failures.translated(error, "write records") from error

    def flush(
        self, producer: Producer, transactional_id: str = "", failed: Sequence[object] = ()
    ) -> None:
        """Wait until every record is written or refused.

        Args:
            producer: The client.
            transactional_id: Who writes.
            failed: Refusals that end the transaction: behind one, the client sends nothing more.
        """
        deadline = time.monotonic() + self._failures.timeout
        try:
            with fatal_told():
                while (left := producer.flush(_PAUSE)) and not failed:
                    if time.monotonic() >= deadline:
                        break
        except KafkaException as error:
            raise self._failures.translated(
                error, "write records", transactional_id=transactional_id
            ) from error
        if left and not failed:
            # Left in the queue they might be written later, after the caller was told otherwise.
            producer.purge()
            producer.flush(1)
            timed_out = KafkaError(KafkaError._TIMED_OUT)
            raise self._failures.translated(timed_out, "write records")

    def undelivered(self, error: KafkaError, record: Appended) -> StreamsError:
        """Return the error of a record that was not written."""
        topic, number, *_ = record
        if error.code() in _REFUSALS:
            self._doubted.add(topic)
            reason = f"{error.str().rstrip('.')}."
            return RecordRefusedError(producer_record(record), reason=reason)
        if error.code() in UNKNOWN_TOPIC:
            self.topics.counts.pop(topic, None)
            return UnknownTopicError(topic, partition=number)
        return self._failures.translated(error, f"write to topic {topic!r}", topic=topic)

    def _least_limit(self, topics: Iterable[str]) -> int:
        """Return how large a batch may be that any of some topics takes."""
        for topic in topics:
            if topic not in self._limits or topic in self._doubted:
                self._limits[topic] = self._ask_limit(topic)
                self._doubted.discard(topic)
        return min(self._limits[topic] for topic in topics)

    def _ask_limit(self, topic: str) -> int:
        try:
            told = self.topics.describe(topic).settings.get("max.message.bytes")
        except AuthorizationError:
            told = None  # who may write to a topic need not be allowed to see its settings
        return self.connector.batch_bytes if told is None else max(1, int(told))

    def group_metadata(self, group: str) -> Any:
        """Return what a transaction needs to commit for a group without members."""
        if group not in self._groups:
            consumer = self.connector.consumer(group_id=group)
            self._groups[group] = consumer.consumer_group_metadata()
            consumer.close()
        return self._groups[group]

    def close(self) -> None:
        """Write what is still waiting."""
        if self._opened is not None:
            self._opened.flush(self._failures.timeout)
            self._opened = None


class _NarrowBatches:
    """Keeps the batches of a client that is open small enough for topics that were not known.

    Args:
        limits: How large a batch may be, by topic.
        flush: Waits until the client has sent what it has; what comes later is another batch.
    """

    def __init__(self, limits: Mapping[str, int], flush: Callable[[], None]) -> None:
        self._limits = limits
        self._flush = flush
        self._sizes: defaultdict[tuple[str, int | None], int] = defaultdict(int)
        flush()

    def make_room(self, record: Appended) -> None:
        """Let a record be the first of a batch, if it does not fit into the last one."""
        topic, number, _, key, value, headers = record
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(
            _RECORD_OVERHEAD + len(name.encode()) + len(held or b"") for name, held in headers or ()
        )
        limit = self._limits[topic] - _BATCH_OVERHEAD
        if self._sizes[topic, number] and self._sizes[topic, number] + size > limit:
            self._flush()
            self._sizes.clear()
        self._sizes[topic, number] += size


class KafkaTransaction:
    """A `LogTransaction` of a producer of its own."""

    def __init__(
        self, writer: KafkaWriter, transactional_id: str, timeout_ms: int | None = None
    ) -> None:
        self._writer = writer
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._failures = writer.connector.failures
        self._failed: list[StreamsError] = []
        self._offsets: list[tuple[str, dict[TopicPartition, OffsetAndMetadata]]] = []
        self._has_records = False

    def __enter__(self) -> KafkaTransaction:
        own: dict[str, Any] = {}
        if self._timeout_ms is not None:
            own["transaction_timeout_ms"] = self._timeout_ms
        self._batch_bytes = own["batch_size"] = self._writer.batch_bytes
        # Successes are implied by an empty queue, so that only failures need a call each.
        self._producer = self._writer.connector.producer(
            transactional_id=self._id, delivery_report_only_error=True, **own
        )
        take_over(self._producer, self._writer.connector, self._id)
        self._producer.begin_transaction()
        return self

    def __exit__(self, error: type[BaseException] | None, *rest: object) -> None:
        if error is not None:
            self._abort()
        elif self._has_records or self._offsets:
            try:
                self._commit()
            except BaseException:
                self._abort()
                raise
        del self._producer

    def append(self, records: Iterable[Appended], /) -> None:
        self._has_records = True
        try:
            self._writer.produce_all(
                self._producer, records, self._delivered, self._batch_bytes, self._failed
            )
        except StreamsError as error:
            # After a refusal the client takes nothing more, and says only that.
            if self._failed:
                raise _most_telling([*self._failed, error]) from error
            raise

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        self._offsets.append((group, dict(offsets)))

    def _delivered(self, record: Appended, error: KafkaError, _: object) -> None:
        self._failed.append(self._writer.undelivered(error, record))

    def _commit(self) -> None:
        try:
            self._writer.flush(self._producer, self._id, self._failed)
            if self._failed:
                # The first error of the broker; those after it only follow from it.
                raise _most_telling(self._failed)
            for group, offsets in self._offsets:
                self._writer.topics.check_partitions(offsets)
                send_offsets(
                    self._producer,
                    self._writer.connector,
                    offsets,
                    self._writer.group_metadata(group),
                )
            commit_transaction(self._producer, self._writer.connector)
        except KafkaException as error:
            raise self._failures.translated(
                error, f"commit transaction {self._id!r}", transactional_id=self._id
            ) from error

    def _abort(self) -> None:
        with suppress(KafkaException):
            abort_transaction(self._producer, self._writer.connector)


def introduce(producer: Producer, connector: Connector) -> None:
    """Let a producer learn the brokers' addresses: what it does next would else wait for a timer.

    Opening an idempotent producer takes 20 ms with this, and 500 to 1,000 ms without.
    """
    try:
        producer.list_topics(timeout=connector.failures.timeout)
    except KafkaException as error:
        producer.poll(0)
        raise connector.failures.translated(error, "list its topics") from error


def take_over(producer: Producer, connector: Connector, transactional_id: str) -> None:
    """Fence every earlier producer of a transactional id."""
    failures = connector.failures
    introduce(producer, connector)
    try:
        _until_done(connector, producer.init_transactions)
    except KafkaException as error:
        producer.poll(0)
        raise failures.translated(
            error, f"open transactional id {transactional_id!r}", transactional_id=transactional_id
        ) from error


def send_offsets(
    producer: Producer,
    connector: Connector,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group_metadata: Any,
) -> None:
    """Add offsets of a group to the transaction."""
    positions = client_partitions(offsets)
    _until_done(
        connector,
        lambda timeout: producer.send_offsets_to_transaction(positions, group_metadata, timeout),
    )


def commit_transaction(producer: Producer, connector: Connector) -> None:
    """Commit; the client goes on with the same commit if it is asked again in time."""
    _until_done(connector, producer.commit_transaction)


def abort_transaction(producer: Producer, connector: Connector) -> None:
    """Abort."""
    _until_done(connector, producer.abort_transaction)


def _until_done(connector: Connector, call: Callable[[float], object]) -> None:
    deadline = time.monotonic() + connector.failures.timeout
    while True:
        try:
            with fatal_told():
                call(max(0.1, deadline - time.monotonic()))
        except KafkaException as error:
            if not error_of(error).retriable() or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _most_telling(failed: list[StreamsError]) -> StreamsError:
    refused = (error for error in failed if isinstance(error, RecordRefusedError))
    return next(refused, failed[0])
