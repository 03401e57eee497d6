"""``headrace produce`` and ``headrace consume``: records in and out of topics, as lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from headrace.brokers import TopicLog, TopicPartition
from headrace.brokers.topic_names import unknown_topic
from headrace.cli.line_values import LineFormat, LineType, LineValueError, SerdeFormat
from headrace.cli.session import Session, counted, with_options
from headrace.cli.settings import (
    BrokerOptions,
    client_keywords,
    code_of,
    duration_of_flag,
    name_and_value,
    named,
    timestamp_of_flag,
)
from headrace.cli.targets import Target, load_target
from headrace.clients import KafkaConsumer, KafkaProducer
from headrace.clients.settings import ConsumerSettings, ProducerSettings
from headrace.config import StreamsConfig
from headrace.control_characters import escape_controls
from headrace.errors import ConfigError, StreamsError
from headrace.records import ConsumerRecord, RecordMetadata

Topic = Annotated[str, typer.Argument(help="The name of a topic.")]

_FIELDS = ("key", "partition", "offset", "timestamp", "headers")
_POLL_MS = 500


@dataclass(frozen=True)
class LineOptions:
    """The layout of keys and values in a line."""

    key_type: Annotated[
        LineType, typer.Option("--key-type", help="The type of keys; bytes are base64.")
    ] = LineType.STRING
    value_type: Annotated[
        LineType, typer.Option("--value-type", help="The type of values; bytes are base64.")
    ] = LineType.STRING
    separator: Annotated[
        str, typer.Option("--separator", help="The text between fields; a tab by default.")
    ] = "\t"
    null_marker: Annotated[
        str | None, typer.Option("--null-marker", help="The text that means null.")
    ] = None


@with_options
def produce(
    topic: Topic,
    value: Annotated[
        str | None, typer.Option("--value", help="One record; without it, lines of standard input.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The key of each record.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="May be repeated."),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0)] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", help="Milliseconds, or ISO-8601; without it: now.")
    ] = None,
    *,
    session: Session,
    lines: LineOptions,
    broker: BrokerOptions,
) -> None:
    """Write records: one with --value, or a line `key<TAB>value` each from standard input."""
    time_ms = None if timestamp is None else timestamp_of_flag(timestamp, "--timestamp")
    pairs = (name_and_value(text, "--header", "-H trace=abc") for text in header or ())
    headers = [(name, text.encode()) for name, text in pairs]
    if not lines.separator:
        msg = "`--separator` is empty. Use at least one character."
        raise ConfigError(msg)
    records = [(1, key, value)] if value is not None else _read_lines(sys.stdin, key, lines)
    keywords = client_keywords(broker.config(), "producer", ProducerSettings.__annotations__)
    with (
        KafkaProducer(
            key=lines.key_type.serde(), value=lines.value_type.serde(), **keywords
        ) as producer,
        broker.open() as log,
    ):
        there = log.list_topics()
        send = partial(
            producer.send, topic, partition=partition, timestamp=time_ms, headers=headers
        )
        try:
            sent = _send_all(send, records, lines, producer.flush)
        finally:
            if topic not in there:
                _note_created(topic, there, log, session)
    session.did(f"Wrote {counted(sent, 'record')} to {topic!r}.", topic=topic, records=sent)


@with_options
def consume(
    topic: Topic,
    *,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin at the first record, not at the end.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Share the work with a group, and commit.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Read one partition alone.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="End after N records.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="End if no record comes for this long, as 5s.")
    ] = None,
    print_: Annotated[
        str, typer.Option("--print", help=f"The fields before the value: {','.join(_FIELDS)}.")
    ] = "key",
    app: Annotated[
        str | None,
        typer.Option("--app", help="Decode with the serdes of a program: file.py[:name]."),
    ] = None,
    session: Session,
    lines: LineOptions,
    broker: BrokerOptions,
) -> None:
    """Print records, one line each; with --output json one object each."""
    columns = [name for name in print_.split(",") if name and name != "value"]
    if unknown := [name for name in columns if name not in _FIELDS]:
        msg = f"`--print` has {unknown[0]!r}. Use {', '.join(_FIELDS)}."
        raise ConfigError(msg)
    if group is not None and partition is not None:
        msg = "A group assigns partitions to its members. Use `--group` or `--partition`."
        raise ConfigError(msg)
    target = None if app is None else load_target(app)
    config = broker.config(None if target is None else code_of(target))
    formats = _formats(topic, target, config, lines)
    with broker.open(config) as log:
        count = log.partition_count(topic)
    wanted = range(count) if partition is None else [partition]
    keywords = client_keywords(config, "main.consumer", ConsumerSettings.__annotations__)
    keywords["auto_offset_reset"] = "earliest" if from_beginning else "latest"
    if group is not None and max_messages is not None:
        # All records of a poll count as read, so a poll may return no more than is printed.
        keywords["max_poll_records"] = 1
    with KafkaConsumer(key=bytes, value=bytes, group_id=group, **keywords) as consumer:
        if group is not None:
            consumer.subscribe([topic])
        else:
            consumer.assign(TopicPartition(topic, number) for number in wanted)
        for record in _records(consumer, max_messages, timeout):
            if session.is_json:
                session.show_json(_data(record, *formats))
            else:
                cells = _cells(record, columns, *formats, lines.null_marker)
                typer.echo(lines.separator.join(escape_controls(c, keep="\t") for c in cells))


def _send_all(
    send: Callable[..., object],
    records: Iterable[tuple[int, str | None, str | None]],
    lines: LineOptions,
    flush: Callable[[], None],
) -> int:
    """Write records until one is refused; return how many were written."""
    sent = 0
    failures: list[StreamsError] = []

    def note(_: RecordMetadata | None, error: StreamsError | None) -> None:
        if error is not None:
            failures.append(error)

    try:
        for number, key, value in records:
            send(*_record(number, key, value, lines), on_completion=note)
            sent += 1
            if failures:
                break
    except LineValueError as error:
        before = f"{counted(sent, 'record')} before it {'is' if sent == 1 else 'are'}."
        msg = f"{error} {before}"
        raise StreamsError(msg) from None
    finally:
        flush()
    if failures:
        raise failures[0]
    return sent


def _note_created(topic: str, there: list[str], log: TopicLog, session: Session) -> None:
    """Note that the topic was created, if it was: its name may be misspelled."""
    with suppress(StreamsError):  # it was not created, and the command has failed for that
        count = log.partition_count(topic)
        near = " or ".join(map(repr, unknown_topic(topic, there).nearest))
        meant = f" Did you mean {near}?" if near else ""
        message = f"Created topic {topic!r} with {counted(count, 'partition')}.{meant}"
        session.note(message, created=topic, partitions=count)


def _read_lines(
    file: Iterable[str], key: str | None, options: LineOptions
) -> Iterator[tuple[int, str | None, str]]:
    """Yield the number, key and value of each line; a line without a separator has no key."""
    number = 0
    try:
        for number, line in enumerate(file, start=1):
            text = line.rstrip("\r\n")
            if not text:
                continue
            before, separator, after = text.partition(options.separator)
            yield (
                (number, key, text) if key is not None or not separator else (number, before, after)
            )
    except UnicodeDecodeError as error:
        msg = f"Standard input is not text in UTF-8 after line {number} ({error.reason})."
        raise LineValueError(msg) from None


def _record(
    number: int, key: str | None, value: str | None, options: LineOptions
) -> tuple[Any, Any]:
    try:
        return (
            _parsed(options.key_type, key, options.null_marker),
            _parsed(options.value_type, value, options.null_marker),
        )
    except LineValueError as error:
        msg = f"Line {number} is not written: {error}"
        raise LineValueError(msg) from None


def _parsed(kind: LineType, text: str | None, null_marker: str | None) -> Any:
    return None if text is None or text == null_marker else kind.value_from(text)


def _records(
    consumer: KafkaConsumer[bytes, bytes], limit: int | None, timeout: str | None
) -> Iterator[ConsumerRecord]:
    timeout_ms = None if timeout is None else duration_of_flag(timeout, "--timeout")
    read = 0
    wait_ms = _POLL_MS if timeout_ms is None else min(_POLL_MS, timeout_ms)
    quiet_since = time.monotonic()
    while timeout_ms is None or time.monotonic() - quiet_since < timeout_ms / 1000:
        for record in consumer.poll(wait_ms):
            yield record
            quiet_since = time.monotonic()
            read += 1
            if read == limit:
                return


def _formats(
    topic: str, target: Target | None, config: StreamsConfig, options: LineOptions
) -> tuple[LineFormat, LineFormat]:
    if target is None:
        return options.key_type, options.value_type
    serdes = target.serdes(topic, named(config, target))
    if serdes is None:
        return LineType.HEX, LineType.HEX
    return SerdeFormat(serdes[0]), SerdeFormat(serdes[1])


def _cells(
    record: ConsumerRecord,
    columns: list[str],
    key: LineFormat,
    value: LineFormat,
    null_marker: str | None,
) -> list[str]:
    cells = {
        "key": key.text_of(record.key, null_marker),
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "headers": ",".join(f"{n}={LineType.STRING.text_of(v, None)}" for n, v in record.headers),
    }
    return [*(cells[name] for name in columns), value.text_of(record.value, null_marker)]


def _data(record: ConsumerRecord, key: LineFormat, value: LineFormat) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": key.data_of(record.key),
        "value": value.data_of(record.value),
        "headers": [[name, LineType.STRING.data_of(data)] for name, data in record.headers],
    }
