"""A program with a way for each kind of hostile record to fail; a record has one output at most.

The names of the steps end in the topic that they read, so that each drop belongs to a topic.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import Any

from headrace import (
    ConsumerRecord,
    FixedKeyProcessor,
    FixedKeyRecord,
    Materialized,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from headrace.serdes import BytesSerde, JsonSerde, LongSerde, Serde, StringSerde
from tests.hostile import SERDES

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BUCKETS = 50


class EvenNumbers(Serde[int]):
    """A serde of a user that raises errors of its own."""

    def serialize(self, value: int, /) -> bytes:
        if value % 2:
            msg = f"{value} is odd"
            raise TypeError(msg)
        return b"%d" % value

    def deserialize(self, data: bytes, /) -> int:
        return int(data)


def milliseconds(text: Any) -> int:
    """Return a date as milliseconds since 1970, which are negative before."""
    moment = datetime.fromisoformat(text)
    return int((moment - _EPOCH).total_seconds() * 1000)


def date_of(record: ConsumerRecord, _partition_time: int) -> int:
    """Return the date that a record holds; -1 drops a record without one."""
    try:
        return milliseconds(record.value)
    except (TypeError, ValueError):
        return -1


class Retime(FixedKeyProcessor[Any, Any, Any]):
    """Give each record the date that it holds."""

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        self.context.forward(record.with_timestamp(milliseconds(record.value)))


def depth_of(value: Any) -> int:
    """Return how deep a value is nested, with a recursion as deep."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth_of, inner), default=0)


def bucket_of(key: Any, _value: Any) -> str:
    """Return one of a few keys, so that the state stays small."""
    return str(zlib.crc32(repr(key).encode()) % _BUCKETS)


def hostile_topology(prefix: str) -> Topology:
    """Return the program; ``prefix`` begins the names of its output topics."""
    builder = StreamsBuilder()
    text, raw, json = StringSerde(), BytesSerde(), JsonSerde()

    def read(topic: str, value: Serde[Any], **options: Any) -> Any:
        return builder.stream(topic, key=text, value=value, name=f"read-{topic}", **options)

    def write(stream: Any, topic: str, value: Serde[Any] | None = None, **options: Any) -> None:
        target = f"{prefix}-{topic}"
        stream.to(target, key=text, value=value, name=f"write-{topic}", **options)

    upper = read("text", text).map_values(str.upper, value=text, name="work-text")
    write(upper, "text", text)
    write(read("nested", json).map_values(depth_of, name="work-nested"), "nested", LongSerde())
    write(read("broken", SERDES["avro"]), "broken", SERDES["avro"])
    unpacked = read("packed", raw).map_values(zlib.decompress, name="work-packed")
    write(unpacked, "packed", raw)
    write(read("sized", raw), "sized", raw)
    write(read("headed", text), "headed", text)
    retimed = read("retimed", json).process_values(Retime, name="work-retimed")
    write(retimed, "retimed", json)
    write(read("numbers", EvenNumbers()), "numbers", EvenNumbers())
    read("chosen", text).to(
        lambda _key, value, _context: value or f"{prefix}-chosen", name="write-chosen"
    )
    by_day = read("dated", json, timestamp_extractor=date_of).group_by_key()
    days = by_day.windowed_by(TimeWindows("1d", grace="365d")).count(
        name="work-dated", materialized=Materialized("days")
    )
    days.to_stream().to(f"{prefix}-dated", name="write-dated")
    buckets = read("counted", raw).select_key(bucket_of, key=text, name="select-counted")
    counts = buckets.group_by_key(name="by-bucket").count(
        name="work-counted", materialized=Materialized("buckets")
    )
    counts.to_stream().to(f"{prefix}-counted", name="write-counted")
    return builder.build()
