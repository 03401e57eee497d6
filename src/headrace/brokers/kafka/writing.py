"""Writing records to Kafka: every delivery is checked, alone or in transactions.

Run `make nightly PART=faults` and `tests/brokers/test_refused_records.py` after a change here.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.error_translation import UNKNOWN_TOPIC, error_of, unwrap_fatal_error
from headrace.brokers.kafka.topics import KafkaTopics
from headrace.brokers.log import RawRecord, TopicPartition, producer_record
from headrace.errors import (
    AuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    BufferExhaustedError,
    RecordRefusedError,
    StreamsError,
    UnknownTopicError,
)
from headrace.records import NO_HEADERS, RecordMetadata

_PAUSE = 0.05
_SERVED_EVERY = 1_000
# The most that Kafka's format adds, in bytes.
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 36
_WIDE_MARGIN = 20
_SLOWEST_BYTES = 50_000
"""Bytes per second that a very slow broker still writes."""
_FADING = 0.9
_REPORT_SECONDS = 1.0
_LOOK_SECONDS = 3.0
_SHORTEST_EXPIRY_MS = 1_000
_LONGEST_EXPIRY_MS = 900_000
"""The brokers' default ``transaction.max.timeout.ms``."""
_SESSION_EXPIRY_MS = 60_000

# Errors of the record itself; all others are errors of the broker.
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

    def __init__(self, client_factory: ClientFactory, topics: KafkaTopics) -> None:
        self.client_factory = client_factory
        self.topics = topics
        self._failures = client_factory.failures
        self._opened: Producer | None = None
        self._opened_bytes = 0
        self._limits: dict[str, int] = {}
        """How large a batch may be for each topic that was written to."""
        self._doubted: set[str] = set()
        """Topics that refused a record: their limit may be lower than before."""
        self.longest_timeout_ms = _LONGEST_EXPIRY_MS
        """The longest timeout of a transaction that the broker has not refused."""
        self._write_seconds = 0.0
        """How long a transaction takes from begin to end, at most."""

    @property
    def batch_bytes(self) -> int:
        """Return how large the batches of a new producer may be.

        A topic refuses a batch that is larger than its ``max.message.bytes``. librdkafka does not
        split and retry it, as Java's producer does.
        """
        return min([self.client_factory.batch_bytes, *self._limits.values()])

    def transaction_timeout_ms(self, size: int = 0) -> int:
        """Return how long a broker lets a transaction of about ``size`` bytes be open.

        Far longer than a transaction takes, and longer than an interruption that clients survive.
        A timeout that is too long costs little: each start, and the next producer of the id, ends
        open transactions. Earlier transactions are not the only measure, because a worker whose
        transaction was aborted too early does not survive.
        """
        fixed_ms = self.client_factory.transaction_timeout_ms
        if fixed_ms is not None:
            return fixed_ms
        interrupted = 2 * self._failures.timeout
        seconds = max(interrupted + size / _SLOWEST_BYTES, _WIDE_MARGIN * self._write_seconds)
        return min(max(_SHORTEST_EXPIRY_MS, int(seconds * 1000)), self.longest_timeout_ms)

    @property
    def session_timeout_ms(self) -> int:
        """The timeout of a session, which may do anything in a transaction: Java's default."""
        fixed_ms = self.client_factory.transaction_timeout_ms
        return min(_SESSION_EXPIRY_MS, self.longest_timeout_ms) if fixed_ms is None else fixed_ms

    def ask_for_less(self, refused_ms: int) -> bool:
        """Lower the timeout that a broker refused; return whether to retry with the shorter one."""
        if (
            self.client_factory.transaction_timeout_ms is not None
            or refused_ms <= _SHORTEST_EXPIRY_MS
        ):
            return False
        shorter_ms = max(_SHORTEST_EXPIRY_MS, refused_ms // 2)
        # Another thread may have lowered it further.
        self.longest_timeout_ms = min(shorter_ms, self.longest_timeout_ms)
        return True

    def note_write(self, seconds: float) -> None:
        """Remember how long a transaction took; earlier ones count less and less."""
        self._write_seconds = max(seconds, _FADING * self._write_seconds)

    def append(self, records: Iterable[RawRecord]) -> list[RecordMetadata]:
        records = list(records)
        for topic, number in {(record[0], record[1]) for record in records}:
            self.check_partition(topic, number)
        producer = self._producer()
        written: defaultdict[tuple[str, int | None], list[int]] = defaultdict(list)
        missing: list[RawRecord] = []
        failed: list[StreamsError] = []

        def delivered(record: RawRecord, error: KafkaError | None, message: Any) -> None:
            if error is None:
                written[record[0], record[1]].append(written_offset(message))
            else:
                missing.append(record)
                failed.append(self.delivery_error(error, record))

        try:
            try:
                self.produce_all(producer, records, delivered, self._opened_bytes)
            except RecordRefusedError as error:
                failed.append(error)  # the client still writes the records it has
            self.flush(producer)
        except BaseException:
            # Its queued records must not be written later, and it may be unusable.
            self._opened = None
            raise
        if failed:
            self._opened = None
            if isinstance(failed[0], RecordRefusedError):
                handed = len(missing) + sum(map(len, written.values()))
                failed[0].taken = _taken(records[:handed], missing)
            raise failed[0]
        # Inside a partition, Kafka's producer keeps the order, and reports in that order.
        offsets = {name: iter(numbers) for name, numbers in written.items()}
        return [
            RecordMetadata(topic, number or 0, next(offsets[topic, number]))
            for topic, number, *_ in records
        ]

    def _producer(self) -> Producer:
        batch_bytes = self.batch_bytes
        if self._opened is None or self._opened_bytes > batch_bytes:
            self._opened = self.client_factory.producer(
                acks="all", enable_idempotence=True, batch_size=batch_bytes
            )
            self._opened_bytes = batch_bytes
            fetch_metadata(self._opened, self.client_factory)
        return self._opened

    def check_partition(self, topic: str, number: int | None) -> None:
        """Refuse a partition that does not exist: the client would create a topic, or wait."""
        if number is None:
            msg = f"A record for topic {topic!r} has no partition. Decide it before writing."
            raise BrokerError(msg)
        self.topics.check_partitions([TopicPartition(topic, number)])

    def produce_all(
        self,
        producer: Producer,
        records: Iterable[RawRecord],
        on_delivery: Callable[..., None],
        batch_bytes: int,
        failed: Sequence[object] = (),
    ) -> None:
        """Hand records to the client, which calls ``on_delivery(record, error, message)`` for each.

        Its batches have up to ``batch_bytes``; ``failed`` is as for `await_delivery`.
        """
        produce: Any = producer.produce
        known = self.topics.counts
        left = iter(records)
        # Created when a topic takes smaller batches than the client would send.
        narrow: BatchSizeLimit | None = None
        while batch := list(islice(left, _SERVED_EVERY)):
            least = min(self.limit(topic) for topic in {record[0] for record in batch})
            if least < batch_bytes and narrow is None:
                narrow = BatchSizeLimit(self.limit, partial(self.flush, producer, failed))
            for record in batch:
                if narrow is not None:
                    narrow.make_room(record)
                topic, number, timestamp, key, value, headers = record
                if number is None or not 0 <= number < known.get(topic, 0):
                    self.check_partition(topic, number)
                report = partial(on_delivery, record)
                if timestamp <= 0 or (headers is not NO_HEADERS and headers):
                    self.produce(producer, record, report)
                    continue
                try:
                    produce(topic, value, key, number, report, None, timestamp)
                except (BufferError, KafkaException):
                    self.produce(producer, record, report)
            self.serve(producer, 0)

    def produce(
        self,
        producer: Producer,
        record: RawRecord,
        on_delivery: Callable[..., None],
        max_block: float | None = None,
    ) -> None:
        """Hand a record to the client, waiting while its queue is full.

        Raises `BufferExhaustedError` if it was full for ``max_block`` seconds, or for our timeout.
        """
        topic, number, timestamp, key, value, headers = record
        assert number is not None
        if timestamp < 0:
            reason = "its timestamp is negative."
            raise RecordRefusedError(producer_record(record), reason=reason)
        # librdkafka reads 0 as "now", which a replayed batch would write differently.
        timestamp = timestamp or 1
        header_list: Any = list(headers or ())
        timeout = self._failures.timeout if max_block is None else max_block
        deadline = time.monotonic() + timeout
        while True:
            try:
                producer.produce(
                    topic, value, key, number, on_delivery, None, timestamp, header_list
                )
            except BufferError as error:
                if time.monotonic() >= deadline:
                    raise BufferExhaustedError(timeout) from error
                self.serve(producer, min(_PAUSE, timeout))
            except KafkaException as error:
                failure = error_of(error)
                is_new = failure.code() == KafkaError._UNKNOWN_PARTITION
                exists = number < self.topics.counts.get(topic, 0)
                if not (is_new and exists) or time.monotonic() > deadline:
                    raise self.delivery_error(failure, record) from error
                # The topic has grown since the producer last fetched its metadata.
                with suppress(KafkaException):
                    producer.list_topics(topic, timeout=self._failures.attempt_timeout)
            else:
                return

    def serve(self, producer: Producer, seconds: float) -> None:
        """Call the callbacks of a producer, waiting at most ``seconds`` for the first."""
        try:
            with unwrap_fatal_error():
                producer.poll(seconds)
        except KafkaException as error:
            raise self._failures.streams_error_from(error, "write records") from error

    def flush(self, producer: Producer, failed: Sequence[object] = ()) -> None:
        """Wait until every record is written or refused; ``failed`` as for `await_delivery`."""
        try:
            left = self.await_delivery(producer, failed)
        except KafkaException as error:
            raise self._failures.streams_error_from(error, "write records") from error
        if left and not failed:
            delivery_timeout_error = self.delivery_timeout_error(
                producer, left, self._failures.timeout
            )
            # Left in the queue they might be written after the caller got this error.
            with suppress(KafkaException), unwrap_fatal_error():
                producer.purge()
                producer.flush(1)
            raise delivery_timeout_error

    def await_delivery(
        self, producer: Producer, failed: Sequence[object] = (), seconds: float | None = None
    ) -> int:
        """Wait until every record is written or refused, and return how many are not.

        After a refusal in a transaction (``failed``) the client sends nothing more. Without
        ``seconds`` the wait ends when the broker has acknowledged no record for our timeout.
        """
        timeout = self._failures.timeout if seconds is None else seconds
        deadline = time.monotonic() + timeout
        least = math.inf
        with unwrap_fatal_error():
            while (left := producer.flush(max(0.0, min(_PAUSE, timeout)))) and not failed:
                now = time.monotonic()
                if left < least and seconds is None:
                    least, deadline = left, now + timeout
                elif now >= deadline:
                    break
        return left

    def await_refusal(self, producer: Producer, failed: Sequence[object]) -> None:
        """Wait at most 1 s until ``failed`` holds the refusal that ended the transaction, if any.

        The client first takes no more records and purges those in its queue, and may report later
        which record was refused.
        """
        deadline = time.monotonic() + _REPORT_SECONDS
        with suppress(KafkaException), unwrap_fatal_error():
            while producer.flush(_PAUSE) and time.monotonic() < deadline:
                if any(isinstance(error, RecordRefusedError) for error in failed):
                    return

    def delivery_timeout_error(
        self, producer: Producer, left: int, seconds: float
    ) -> BrokerUnavailableError:
        """Return the error of records that are neither written nor refused in time.

        The client retries without a reason; too few replicas is the only one that metadata shows.
        """
        behind: list[str] = []
        with suppress(KafkaException), unwrap_fatal_error():
            look = min(_LOOK_SECONDS, self._failures.timeout)
            listed = producer.list_topics(timeout=look).topics
            behind = [
                f"partition {state.id} of {topic!r} has {len(state.isrs)} of {len(state.replicas)}"
                for topic in sorted(self._limits.keys() & listed.keys())
                for state in listed[topic].partitions.values()
                if len(state.isrs) < len(state.replicas)
            ]
        why = f" Too few replicas may be in sync: {behind[0]}." if behind else ""
        return BrokerUnavailableError(
            f"The broker at {self._failures.servers} acknowledged no record for "
            f"{seconds:g} s{self._failures.last_heard()}; {left} are waiting."
            f"{why} Check that all brokers run, and that the topics "
            "have enough replicas in sync (`min.insync.replicas`)."
        )

    def delivery_error(self, error: KafkaError, record: RawRecord) -> StreamsError:
        """Return the error of a record that was not written."""
        topic, number, *_ = record
        if error.code() in _REFUSALS:
            self._doubted.add(topic)
            reason = f"{error.str().rstrip('.')}."
            return RecordRefusedError(producer_record(record), reason=reason)
        if error.code() in UNKNOWN_TOPIC:
            self.topics.counts.pop(topic, None)
            return UnknownTopicError(topic, partition=number)
        return self._failures.streams_error_from(error, f"write to topic {topic!r}", topic=topic)

    def limit(self, topic: str) -> int:
        """Return the largest batch that a topic takes."""
        if topic not in self._limits or topic in self._doubted:
            self._limits[topic] = self._ask_limit(topic)
            self._doubted.discard(topic)
        return self._limits[topic]

    def _ask_limit(self, topic: str) -> int:
        try:
            limit = self.topics.describe(topic).settings.get("max.message.bytes")
        except AuthorizationError:
            limit = None  # a client that may write to a topic may lack the right to describe it
        return self.client_factory.batch_bytes if limit is None else max(1, int(limit))

    def close(self) -> None:
        """Write the records that are still queued."""
        if self._opened is not None:
            with suppress(KafkaException), unwrap_fatal_error():
                self._opened.flush(self._failures.timeout)
            self._opened = None


def written_offset(message: Message) -> int:
    """Return the offset of a delivered record; -1 if the client does not know it.

    A broker answers a request that it has served before without the offsets.
    """
    offset = message.offset()
    return -1 if offset is None else int(offset)


def _taken(handed: Iterable[RawRecord], missing: Iterable[RawRecord]) -> frozenset[int]:
    """Return the indexes of records that need not be written again.

    Records behind a missing one of their partition must be, or it would come after them.
    """
    lost = set(map(id, missing))
    broken: set[tuple[object, ...]] = set()
    taken: set[int] = set()
    for index, record in enumerate(handed):
        if id(record) in lost:
            broken.add(record[:2])
        elif record[:2] not in broken:
            taken.add(index)
    return frozenset(taken)


class BatchSizeLimit:
    """Keeps the batches of an open client small enough for topics with a lower limit.

    ``limit`` returns the largest batch that a topic takes. ``flush`` waits until the client has
    sent its records; later ones form another batch.
    """

    def __init__(self, limit: Callable[[str], int], flush: Callable[[], object]) -> None:
        self._limit = limit
        self._flush = flush
        self._sizes: defaultdict[tuple[str, int | None], int] = defaultdict(int)
        flush()

    def make_room(self, record: RawRecord) -> None:
        """Flush first if a record does not fit into the open batch."""
        topic, number, _, key, value, headers = record
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(
            _RECORD_OVERHEAD + len(name.encode()) + len(held or b"") for name, held in headers or ()
        )
        limit = self._limit(topic) - _BATCH_OVERHEAD
        if self._sizes[topic, number] and self._sizes[topic, number] + size > limit:
            self._flush()
            self._sizes.clear()
        self._sizes[topic, number] += size


def fetch_metadata(producer: Producer, client_factory: ClientFactory) -> None:
    """Fetch cluster metadata now. Otherwise the producer's first request waits for a timer.

    Opening an idempotent producer takes 20 ms with this, and 500 to 1,000 ms without.
    """
    try:
        client_factory.failures.call_with_retries(
            lambda seconds: producer.list_topics(timeout=seconds)
        )
    except KafkaException as error:
        with suppress(KafkaException), unwrap_fatal_error():
            producer.poll(0)
        raise client_factory.failures.streams_error_from(error, "list its topics") from error
