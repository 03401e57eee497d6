"""Messages of Kafka's client as records."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from headrace.brokers.log import RecordColumns
from headrace.records import NO_HEADERS, ConsumerRecord, Headers


def record_from_message(message: Any) -> ConsumerRecord:
    """Return a message that was read."""
    headers = message.headers()
    return ConsumerRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        Headers(headers) if headers else NO_HEADERS,
    )


def columns_from_messages(messages: list[Any]) -> RecordColumns:
    """Return messages that were read, a column each: no Python code runs per message."""
    headers: list[Any] = list(map(Message.headers, messages))
    offsets: list[Any] = list(map(Message.offset, messages))
    return RecordColumns(
        offsets,
        [timestamp for _, timestamp in map(Message.timestamp, messages)],
        list(map(Message.key, messages)),
        list(map(Message.value, messages)),
        [Headers(each) if each else NO_HEADERS for each in headers] if any(headers) else None,
    )
