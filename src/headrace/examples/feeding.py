"""The generated input of an example: records, their lines in JSON, their bytes, and their pace."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple, Protocol

import msgspec

from headrace.app import KafkaStreams
from headrace.brokers.log import RawRecord, TopicLog
from headrace.config.topology_defaults import topology_defaults
from headrace.records import headers_of
from headrace.serdes.base import Serde, serde_for_topic
from headrace.serdes.json_serde import JsonSerde
from headrace.serdes.partitioner import partition_for_key
from headrace.topology.nodes import SinkNode
from headrace.topology.sources import Sources

_UNDECODABLE = "undecodable"
"""The name of raw bytes in a line, which it has in hexadecimal, as in ``headrace consume``."""
_PLAIN = (dict, list, str, int, float, Decimal)
_JSON = msgspec.json.Encoder(decimal_format="number")
_LINES = msgspec.json.Decoder(float_hook=Decimal)  # all digits of a number come back
_SECONDS = 0.1
"""How often a paced feed writes."""


class FeedRecord(NamedTuple):
    """One record of a feed.

    Key and value are of the types of their topic, or JSON as Python has it (dict, list, text,
    number). Bytes are written as they are, so that a feed can contain broken records.
    """

    topic: str
    key: Any
    value: Any
    timestamp: int
    """Milliseconds. Feeds count from a fixed time, so that every run has the same figures."""
    partition: int | None = None
    """None: the partition of the key."""
    headers: tuple[tuple[str, bytes], ...] = ()


class Feed(Protocol):
    """The content of a module ``feed.py``."""

    TOPICS: Mapping[str, int]
    """The input topics, with their partition counts."""
    PER_SECOND: float
    """How many records a live run writes per second."""

    def feed(self, seed: int = ...) -> Iterator[FeedRecord]:
        """Yield records, the same for the same seed; finitely many or without end."""
        ...


def lines_from_records(records: Iterable[FeedRecord]) -> Iterator[str]:
    """Yield each record as a line of JSON, with the names that ``headrace consume`` prints."""
    for record in records:
        line = {
            "topic": record.topic,
            "partition": record.partition,
            "timestamp": record.timestamp,
            "key": _shown(record.key),
            "value": _shown(record.value),
            "headers": [[name, data.decode()] for name, data in record.headers],
        }
        yield _JSON.encode(line).decode()


def records_from_lines(lines: Iterable[str]) -> Iterator[FeedRecord]:
    """Yield the records of lines in JSON; keys and values are JSON as Python has it."""
    for line in lines:
        data = _LINES.decode(line)
        yield FeedRecord(
            data["topic"],
            _read(data["key"]),
            _read(data["value"]),
            data["timestamp"],
            data.get("partition"),
            tuple((name, text.encode()) for name, text in data.get("headers", ())),
        )


def print_lines(records: Iterable[FeedRecord]) -> None:
    """Print records as lines of JSON: ``python -m headrace.examples.orders.feed``."""
    try:
        for line in lines_from_records(records):
            sys.stdout.write(f"{line}\n")
    except BrokenPipeError:  # the reader of a pipe has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Encoding:
    """Turns the records of a feed into bytes, with the serdes of the application that reads them.

    Args:
        app: The application.
        partitions: How many partitions the input topics have. Records without a partition get that
            of their key; records without a key go to all partitions in turn.
    """

    def __init__(self, app: KafkaStreams, partitions: Mapping[str, int] | None = None) -> None:
        self._partitions = partitions or {}
        self._turns: Counter[str] = Counter()
        lowered = app.topology.lowered(topology_defaults(app.config))
        nodes = lowered.graph.nodes.values()
        self._sources = Sources(nodes, app.config.require_application_id())
        self.sinks: dict[str, tuple[Serde[Any], Serde[Any]]] = {
            node.topic: (
                serde_for_topic(node.key.need, node.topic, is_key=True),
                serde_for_topic(node.value.need, node.topic, is_key=False),
            )
            for node in nodes
            if isinstance(node, SinkNode) and isinstance(node.topic, str) and not node.internal
        }
        """The serdes of keys and values of the topics that the application writes."""

    def raw(self, record: FeedRecord) -> RawRecord:
        """Return a record as a log takes it."""
        source = self._sources.of(record.topic)
        assert source is not None, f"the application does not read {record.topic!r}"
        key_serde = serde_for_topic(source.key.need, record.topic, is_key=True)
        value_serde = serde_for_topic(source.value.need, record.topic, is_key=False)
        key, value = _encoded(record.key, key_serde), _encoded(record.value, value_serde)
        partition = self._partition_of(record, key)
        headers = headers_of(record.headers)
        return record.topic, partition, record.timestamp, key, value, headers

    def _partition_of(self, record: FeedRecord, key: bytes | None) -> int:
        count = self._partitions.get(record.topic, 1)
        if record.partition is not None:
            return record.partition
        if key is not None:
            return partition_for_key(key, count)
        self._turns[record.topic] += 1
        return self._turns[record.topic] % count


def write_paced(
    log: TopicLog,
    encoding: Encoding,
    records: Iterable[FeedRecord],
    per_second: float,
    stop: threading.Event,
) -> int:
    """Write records at a pace until they end or ``stop`` is set; return how many were written."""
    waiting = iter(records)
    began, written = time.monotonic(), 0
    is_stopped = False
    while not is_stopped:
        due = int((time.monotonic() - began) * per_second) + 1 - written
        chunk = [encoding.raw(record) for record in islice(waiting, due)]
        if due and not chunk:
            break
        log.append(chunk)
        written += len(chunk)
        is_stopped = stop.wait(_SECONDS)
    return written


def _encoded(value: Any, serde: Serde[Any]) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, dict | list) or (
        isinstance(serde, JsonSerde) and isinstance(value, _PLAIN)
    ):
        return _JSON.encode(value)
    return serde.serialize(value)


def _shown(value: Any) -> Any:
    return {_UNDECODABLE: value.hex()} if isinstance(value, bytes) else value


def _read(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {_UNDECODABLE}:
        return bytes.fromhex(value[_UNDECODABLE])
    return value
