"""Find the records that a broker is certain to refuse, before they are sent.

Kafka refuses a request as a whole, and a refusal ends the transaction: librdkafka reports the first
refused request and at most the four that are on their way. To find 2,500 refused records by sending
them takes one transaction for each. Their size and the settings of the topic show them at once.

How small the client compresses a record shows only in the broker's answer. So records that are too
large uncompressed are written without a transaction to a topic that has the same limits, and that
is then deleted.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from uuid import uuid4

from confluent_kafka import KafkaError

from headrace.brokers.kafka.settings import client_settings
from headrace.brokers.kafka.topics import KafkaTopics
from headrace.brokers.kafka.writing import KafkaWriter
from headrace.brokers.log import RawRecord, producer_record
from headrace.errors import (
    AuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    RecordRefusedError,
    StreamsError,
)
from headrace.topology.naming import trial_topic

_log = logging.getLogger("headrace")

_BATCH_OVERHEAD = 61
"""The bytes of a batch before its first record."""
_FIXED_FIELDS = 3
"""The bytes of a record for its attributes and the differences of timestamp and offset, both 0."""
_CLOCK_SKEW_MS = 60_000
"""How far the clocks of broker and client may differ."""
_LIMITS = ("compression.", "max.message.bytes", "message.timestamp.")
"""How the settings begin that decide about the size and the timestamp of a record."""
_LEFTOVER_MS = 60_000
"""How long records stay if the process is killed before it deletes the topic."""


def refusals(
    writer: KafkaWriter, records: Iterable[RawRecord]
) -> list[tuple[int, RecordRefusedError]]:
    """Return the indexes of refused records, in ascending order, and why the broker refuses each.

    A broker may refuse others: compressed ones, if it lets this client create no topic.
    """
    given = client_settings("producer", writer.client_factory.producer_settings)
    rules: dict[str, _TopicRules] = {}
    refused: dict[int, RecordRefusedError] = {}
    compressed: defaultdict[str, dict[int, RawRecord]] = defaultdict(dict)
    for index, record in enumerate(records):
        topic = record[0]
        if topic not in rules:
            rules[topic] = _TopicRules(_settings_of(writer.topics, topic), given)
        reason = rules[topic].refusal(record)
        if reason is not None:
            refused[index] = RecordRefusedError(producer_record(record), reason=reason)
        elif rules[topic].depends_on_compression(record):
            compressed[topic][index] = record
    for topic, tried in compressed.items():
        found = _try_records(writer, list(tried.values()), rules[topic].settings)
        indexes = list(tried)
        refused |= {indexes[position]: error for position, error in found.items()}
    return sorted(refused.items())


def _settings_of(topics: KafkaTopics, topic: str) -> Mapping[str, str]:
    try:
        return topics.effective_settings(topic)
    except AuthorizationError:
        return {}  # a producer need not be allowed to see the settings of its topics


def _try_records(
    writer: KafkaWriter, records: Sequence[RawRecord], settings: Mapping[str, str]
) -> dict[int, RecordRefusedError]:
    """Return the indexes of the records that a topic with ``settings`` refuses, and why.

    Nothing if the broker does not let this client create a topic.

    Raises:
        BrokerUnavailableError: The broker does not answer.
    """
    with _trial_topic(writer, settings) as topic:
        return {} if topic is None else _refused(writer, records, topic)


@contextmanager
def _trial_topic(writer: KafkaWriter, settings: Mapping[str, str]) -> Iterator[str | None]:
    """Create a topic, and delete it in the end; None if that is not allowed."""
    topic = trial_topic(writer.client_factory.application_id or "headrace", uuid4().hex[:12])
    limits = {name: value for name, value in settings.items() if name.startswith(_LIMITS)}
    try:
        writer.topics.create(topic, 1, {**limits, "retention.ms": str(_LEFTOVER_MS)})
    except BrokerUnavailableError:
        raise
    except BrokerError as error:
        _log.debug("Topic %r cannot be created, so each refusal takes longer: %s", topic, error)
        yield None
        return
    try:
        yield topic
    finally:
        with suppress(StreamsError):
            writer.topics.delete(topic)


def _refused(
    writer: KafkaWriter, records: Sequence[RawRecord], topic: str
) -> dict[int, RecordRefusedError]:
    refused: dict[int, RecordRefusedError] = {}
    failed: list[StreamsError] = []

    def delivered(index: int, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failure = writer.delivery_error(error, records[index])
            if isinstance(failure, RecordRefusedError):
                refused[index] = failure
            else:
                failed.append(failure)

    # One record in a batch, as they are sent: each is larger than a batch that the topic accepts.
    producer = writer.client_factory.producer(
        acks=1, enable_idempotence=False, batch_size=1, linger_ms=0
    )
    for index, record in enumerate(records):
        report = partial(delivered, index)
        try:
            writer.produce(producer, (topic, 0, *record[2:]), report)
        except RecordRefusedError as error:
            refused[index] = error
        writer.serve(producer, 0)
    writer.flush(producer)
    if failed:
        raise failed[0]
    return refused


class _TopicRules:
    """The limits of a topic and of the client."""

    def __init__(self, topic: Mapping[str, str], client: Mapping[str, str]) -> None:
        self.settings = topic
        self._is_compressed = client.get("compression.type", "none") != "none"
        limit = topic.get("max.message.bytes")
        self._max_batch_bytes = None if limit is None else int(limit)
        self._max_client_bytes = int(client["message.max.bytes"])
        self._compacts = "compact" in topic.get("cleanup.policy", "")
        now = time.time_ns() // 1_000_000
        self._earliest, self._latest = 0, 2**63
        if topic.get("message.timestamp.type") == "CreateTime":
            before = int(topic.get("message.timestamp.before.max.ms", 2**63))
            after = int(topic.get("message.timestamp.after.max.ms", 2**63))
            self._earliest = max(0, now - before - _CLOCK_SKEW_MS)
            self._latest = now + after + _CLOCK_SKEW_MS

    def refusal(self, record: RawRecord) -> str | None:
        """Return why the record is refused; None if it may be accepted."""
        _, _, timestamp, key, value, _ = record
        if timestamp < 0:
            return "its timestamp is negative."
        if not self._is_compressed and (size := self._too_large(record)):
            limit = self._max_batch_bytes
            return f"it is too large ({size} bytes, and `max.message.bytes` is {limit})."
        size, limit = len(key or b"") + len(value or b""), self._max_client_bytes
        if size > limit:
            return f"it is too large ({size} bytes, and `max.request.size` is {limit})."
        if key is None and self._compacts:
            return "a compacted topic takes no record without a key."
        if not self._earliest <= timestamp <= self._latest:
            return (
                f"its timestamp {timestamp} is outside of the topic's "
                "`message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`."
            )
        return None

    def depends_on_compression(self, record: RawRecord) -> bool:
        """Return whether the topic accepts a record only if the client compresses it enough."""
        return self._is_compressed and self._too_large(record) > 0

    def _too_large(self, record: RawRecord) -> int:
        """Return the size of a record that is too large uncompressed; 0 if it is not."""
        limit = self._max_batch_bytes
        size = batch_size(record)
        return size if limit is not None and size > limit else 0


def batch_size(record: RawRecord) -> int:
    """Return the bytes of a batch that has only this record, without compression."""
    _, _, _, key, value, headers = record
    size = _FIXED_FIELDS + _field_size(key) + _field_size(value) + _varint_size(len(headers or ()))
    for name, held in headers or ():
        size += _field_size(name.encode()) + _field_size(held)
    return _BATCH_OVERHEAD + _varint_size(size) + size


def _field_size(data: bytes | None) -> int:
    return 1 if data is None else _varint_size(len(data)) + len(data)


def _varint_size(number: int) -> int:
    """Return the bytes of a number of zero or more in Kafka's zigzag encoding, 7 bits in each."""
    return max(1, -(-(2 * number).bit_length() // 7))
