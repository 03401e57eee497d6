"""A producer of Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.brokers.kafka import transactions
from headrace.brokers.kafka.admin import KafkaAdmin
from headrace.brokers.kafka.consumer import KafkaGroupMetadata
from headrace.brokers.kafka.error_translation import NOT_READY, UNKNOWN_TOPIC
from headrace.brokers.kafka.writing import (
    BatchSizeLimit,
    KafkaWriter,
    fetch_metadata,
    written_offset,
)
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import ABORTED, GroupMetadata, OnDelivery
from headrace.brokers.topic_names import checked_topic_name, unknown_topic
from headrace.errors import BrokerError, ProducerFencedError, RecordRefusedError, StreamsError
from headrace.records import ProducerRecord, RecordMetadata

_PAUSE = 0.05
_REPORT_PAUSE = 0.001
_SERVE_SECONDS = 0.1


class KafkaProducerSession:
    """A `ProducerSession` over librdkafka's producer; a thread serves its delivery reports."""

    delivers_before_commit = True

    def __init__(self, writer: KafkaWriter, admin: KafkaAdmin, settings: Mapping[str, str]) -> None:
        self._writer = writer
        self._admin = admin
        self._client_factory = writer.client_factory
        self._failures = writer.client_factory.failures
        self._counts: dict[str, int] = {}
        self._numbers = count()
        self._waiting: dict[int, OnDelivery] = {}
        """The functions that wait for the report of a record, by its number."""
        self._reporting = threading.RLock()
        self._id = settings.get("transactional.id", "")
        self._batch_bytes = int(settings.get("batch.size", self._client_factory.batch_bytes))
        self._max_block = int(settings.get("max.block.ms", 1000 * self._failures.timeout)) / 1000
        self._narrow: BatchSizeLimit | None = None
        """Set once a topic takes smaller batches than the client sends."""
        self._failed: list[StreamsError] = []
        """Errors of the open transaction's records."""
        # Java's default, which keeps the order and writes nothing twice.
        self._producer = self._opened({"enable.idempotence": "true", **settings})
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="kafka-producer", daemon=True)
        self._thread.start()

    def _opened(self, settings: Mapping[str, str]) -> Producer:
        if not self._id:
            producer = self._client_factory.producer(settings)
            fetch_metadata(producer, self._client_factory)
        elif "transaction.timeout.ms" in settings:
            producer = self._client_factory.producer(settings, transactional_id=self._id)
            transactions.take_over(producer, self._client_factory, self._id)
        else:
            producer, _ = transactions.open_transactional(
                self._writer, self._id, self._writer.session_timeout_ms, settings
            )
        return producer

    def partition_count(self, topic: str, /) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._ask_count(checked_topic_name(topic))
        return self._counts[topic]

    def send(self, record: ProducerRecord, on_delivery: OnDelivery, /) -> None:
        number = next(self._numbers)

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                offset = written_offset(message)
                where = RecordMetadata(message.topic(), message.partition(), offset)
                failure = None
            else:
                where, failure = None, self._writer.delivery_error(error, record)
                if self._id:
                    self._failed.append(failure)
            self._report(number, where, failure)

        self._make_room(record)
        self._waiting[number] = on_delivery
        try:
            self._writer.produce(self._producer, record, delivered, self._max_block)
        except BaseException:
            del self._waiting[number]
            if self._id:
                self._writer.await_refusal(self._producer, self._failed)
            self._raise_refused()
            raise

    def flush(self, timeout_ms: int | None = None, /) -> None:
        seconds = None if timeout_ms is None else timeout_ms / 1000
        # After a refusal in a transaction the client sends nothing more.
        failed = self._failed if self._id else ()
        try:
            left = self._writer.await_delivery(self._producer, failed, seconds)
        except KafkaException as error:
            failure = self._failures.streams_error_from(
                error, "write records", transactional_id=self._id
            )
            self._report_forgotten(failure)
            raise failure from error
        if left and not failed:
            waited = self._failures.timeout if seconds is None else seconds
            raise self._writer.delivery_timeout_error(self._producer, left, waited)

    def begin_transaction(self) -> None:
        self._failed.clear()
        self._in_transaction("begin", self._producer.begin_transaction)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        assert isinstance(group, KafkaGroupMetadata)
        self._writer.topics.check_partitions(offsets)
        self._in_transaction(
            "commit offsets in",
            partial(
                transactions.send_offsets,
                self._producer,
                self._client_factory,
                offsets,
                group.opaque,
            ),
            group=group.group,
        )

    def commit_transaction(self) -> None:
        self._raise_refused()
        self._in_transaction(
            "commit", partial(transactions.commit_transaction, self._producer, self._client_factory)
        )

    def abort_transaction(self) -> None:
        self._in_transaction(
            "abort", partial(transactions.abort_transaction, self._producer, self._client_factory)
        )
        # The client has dropped all records; the thread that reports them may lag.
        deadline = time.monotonic() + self._failures.timeout
        while self._waiting and time.monotonic() < deadline:
            time.sleep(_REPORT_PAUSE)
        self._report_forgotten(BrokerError(ABORTED))

    def close(self, timeout_ms: int | None = None, /) -> None:
        try:
            # A fenced producer raised this when it sent.
            with suppress(ProducerFencedError):
                self.flush(timeout_ms)
        finally:
            self._closed.set()
            self._thread.join()

    def _report(
        self, number: int, where: RecordMetadata | None, failure: StreamsError | None
    ) -> None:
        with self._reporting:
            if (waiting := self._waiting.pop(number, None)) is not None:
                waiting(where, failure)

    def _report_forgotten(self, failure: StreamsError) -> None:
        """Report records that the client never reports, because a fatal error interrupted them."""
        with self._reporting:
            for number in list(self._waiting):
                self._report(number, None, failure)

    def _raise_refused(self) -> None:
        """Raise the refusal that ended the transaction: the client names no reason."""
        for failure in self._failed:
            if isinstance(failure, RecordRefusedError):
                raise failure

    def _make_room(self, record: ProducerRecord) -> None:
        """Flush first if the topic takes no batch with this record added."""
        self.partition_count(record.topic)  # creates the topic if the broker does that
        if self._writer.limit(record.topic) < self._batch_bytes and self._narrow is None:
            self._narrow = BatchSizeLimit(self._writer.limit, self.flush)
        if self._narrow is not None:
            self._narrow.make_room(record)

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                self._producer.poll(_SERVE_SECONDS)
            except (KafkaException, SystemError):
                # The next call of its user raises the error that ended this producer.
                self._closed.wait(_SERVE_SECONDS)

    def _in_transaction(self, doing: str, call: Any, *, group: str = "") -> None:
        try:
            call()
        except KafkaException as error:
            raise self._failures.streams_error_from(
                error,
                f"{doing} transaction {self._id!r}",
                group=group,
                transactional_id=self._id,
            ) from error

    def _ask_count(self, topic: str) -> int:
        """Return the partition count of a topic; the broker may create it."""
        deadline = time.monotonic() + self._max_block
        while True:
            try:
                metadata = self._failures.call_with_retries(
                    partial(self._producer.list_topics, topic)
                )
            except KafkaException as error:
                doing = f"describe topic {topic!r}"
                raise self._failures.streams_error_from(error, doing, topic=topic) from error
            described = metadata.topics[topic]
            error_of_topic = described.error
            if error_of_topic is None and described.partitions:
                return len(described.partitions)
            code = KafkaError._TIMED_OUT if error_of_topic is None else error_of_topic.code()
            passes = error_of_topic is None or code in NOT_READY or code in UNKNOWN_TOPIC
            if not passes or time.monotonic() >= deadline:
                break
            time.sleep(_PAUSE)
        if code in UNKNOWN_TOPIC:
            raise unknown_topic(topic, self._admin.topics())
        doing = f"describe topic {topic!r}"
        raise self._failures.streams_error_from(
            error_of_topic or KafkaError(code), doing, topic=topic
        )
