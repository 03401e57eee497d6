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

    What stands for headers that cannot be read is `headrace.records.without_headers`.
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
        [Headers(each) if each else NO_HEADERS for each in headers] if any(headers) else None,
    )


def _headers_of(messages: list[Any]) -> tuple[list[Any], dict[int, str]]:
    """Return the headers of messages, and by index why the client cannot read some of them.

    The client wants names in UTF-8, where Java takes any bytes. After it has failed it would hand
    out lists with holes, which end the process: so each message is asked once. And it returns a
    list along with the error, which `map` finds out, and a plain call may not.
    """
    found: list[Any] = []
    unreadable: dict[int, str] = {}
    left = iter(messages)
    while True:
        try:
            found.extend(map(Message.headers, left))
        except (SystemError, UnicodeDecodeError) as error:
            unreadable[len(found)] = _reason(error)
            found.append(None)
        else:
            return found, unreadable


def _reason(error: SystemError | UnicodeDecodeError) -> str:
    cause = error.__cause__ if isinstance(error, SystemError) else error
    if not isinstance(cause, UnicodeDecodeError):
        raise error
    return f"the name {cause.object[:_LONGEST_NAME]!r} is not UTF-8"
