"""Find the records that a broker is certain to refuse, before they are sent.

Kafka refuses a request as a whole, and a refusal ends the transaction: librdkafka reports the first
refused request and at most the four that are on their way. To find 2,500 refused records by sending
them takes one transaction for each. Their size and the settings of the topic show them at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from headrace.brokers.kafka.settings import client_settings
from headrace.brokers.kafka.topics import KafkaTopics
from headrace.brokers.log import RawRecord, producer_record
from headrace.errors import AuthorizationError, RecordRefusedError

_BATCH_OVERHEAD = 61
"""The bytes of a batch before its first record."""
_FIXED_FIELDS = 3
"""The bytes of a record for its attributes and the differences of timestamp and offset, both 0."""
_CLOCK_SKEW_MS = 60_000
"""How far the clocks of broker and client may differ."""


def refusals(
    topics: KafkaTopics, producer_settings: Mapping[str, str], records: Iterable[RawRecord]
) -> list[tuple[int, RecordRefusedError]]:
    """Return the indexes of refused records, and why the broker refuses each.

    A record that is not among them may still be refused: one that is compressed, for example.
    """
    given = client_settings("producer", producer_settings)
    is_compressed = given.get("compression.type", "none") != "none"
    rules: dict[str, _TopicRules] = {}
    refused = []
    for index, record in enumerate(records):
        topic = record[0]
        if topic not in rules:
            rules[topic] = _TopicRules(_settings_of(topics, topic), given, is_compressed)
        reason = rules[topic].refusal(record)
        if reason is not None:
            refused.append((index, RecordRefusedError(producer_record(record), reason=reason)))
    return refused


def _settings_of(topics: KafkaTopics, topic: str) -> Mapping[str, str]:
    try:
        return topics.effective_settings(topic)
    except AuthorizationError:
        return {}  # a producer need not be allowed to see the settings of its topics


class _TopicRules:
    """The limits of a topic and of the client."""

    def __init__(
        self,
        topic: Mapping[str, str],
        client: Mapping[str, str],
        is_compressed: bool,  # noqa: FBT001
    ) -> None:
        limit = None if is_compressed else topic.get("max.message.bytes")
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
        limit = self._max_batch_bytes
        if limit is not None and (size := batch_size(record)) > limit:
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
