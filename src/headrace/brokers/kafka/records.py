"""Messages of Kafka's client as records."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from confluent_kafka import Message

from headrace.brokers.log import RecordColumns
from headrace.records import NO_HEADERS, ConsumerRecord, Headers, without_headers

_LONGEST_NAME = 100


def records_from_messages(messages: list[Any]) -> list[ConsumerRecord]:
    """Return messages that were read, of any partitions."""
    offsets, timestamps, keys, values, headers = columns_from_messages(messages)
    topics: Any = map(Message.topic, messages)
    numbers: Any = map(Message.partition, messages)
    all_headers = repeat(NO_HEADERS, len(messages)) if headers is None else headers
    rows = zip(topics, numbers, offsets, timestamps, keys, values, all_headers, strict=True)
    return list(map(ConsumerRecord._make, rows))


def columns_from_messages(messages: list[Any]) -> RecordColumns:
    """Return messages that were read, a column each: no Python code runs per message.

    `headrace.records.without_headers` replaces headers that cannot be read.
    """
    headers, unreadable = _headers_of(messages)
    offsets: list[Any] = list(map(Message.offset, messages))
    timestamps = [timestamp for _, timestamp in map(Message.timestamp, messages)]
    for index, reason in unreadable.items():
        timestamps[index], headers[index] = without_headers(timestamps[index], reason)
    return RecordColumns(
        offsets,
        timestamps,
        list(map(Message.key, messages)),
        list(map(Message.value, messages)),
        [Headers(pairs) if pairs else NO_HEADERS for pairs in headers] if any(headers) else None,
    )


def _headers_of(messages: list[Any]) -> tuple[list[Any], dict[int, str]]:
    """Return the headers of messages, and by index why the client cannot read some of them.

    The client expects names in UTF-8, Java takes any bytes. After an error the client returns lists
    with holes, which crash the process, so each message is read once. It also returns a list along
    with the error; `map` detects that, a plain call may not.
    """
    headers: list[Any] = []
    unreadable: dict[int, str] = {}
    left = iter(messages)
    while True:
        try:
            headers.extend(map(Message.headers, left))
        except (SystemError, UnicodeDecodeError) as error:
            unreadable[len(headers)] = _reason(error)
            headers.append(None)
        else:
            return headers, unreadable


def _reason(error: SystemError | UnicodeDecodeError) -> str:
    cause = error.__cause__ if isinstance(error, SystemError) else error
    if not isinstance(cause, UnicodeDecodeError):
        raise error
    return f"the name {cause.object[:_LONGEST_NAME]!r} is not UTF-8"
