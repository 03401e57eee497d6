"""Bytes of a hostile or broken producer: they fit no serde, or nearly fit one."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from google.protobuf.struct_pb2 import Struct

from headrace import StreamsBuilder, TimeWindows, Topology
from headrace.serdes import (
    AvroSerde,
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    JsonSerde,
    ListSerde,
    LongSerde,
    ProtobufSerde,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    StringSerde,
    TimeWindowedSerde,
    UuidSerde,
    VoidSerde,
)
from headrace.windows.window import Window, Windowed

TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "leaves", "type": {"type": "array", "items": "Tree"}},
        {"name": "next", "type": ["null", "Tree"]},
    ],
}
"""An Avro schema that contains itself."""

SERDES: dict[str, Serde[Any]] = {
    "avro": AvroSerde(TREE),
    "boolean": BooleanSerde(),
    "bytes": BytesSerde(),
    "double": DoubleSerde(),
    "float": FloatSerde(),
    "integer": IntegerSerde(),
    "json": JsonSerde(),
    "json-lists": JsonSerde(list[dict[str, int]]),
    "list-of-longs": ListSerde(LongSerde()),
    "list-of-texts": ListSerde(StringSerde()),
    "long": LongSerde(),
    "protobuf": ProtobufSerde(Struct),
    "session": SessionWindowedSerde(StringSerde()),
    "short": ShortSerde(),
    "text": StringSerde(),
    "uuid": UuidSerde(),
    "void": VoidSerde(),
    "windowed": TimeWindowedSerde(StringSerde(), size_ms=1000),
}
"""Every serde that reads bytes of others."""

_LEAF = {"text": "leaf", "day": 20_000, "price": Decimal(5), "leaves": [], "next": None}
VALID: tuple[bytes, ...] = (
    b'{"customer": "ann", "amount": 12.5, "items": [1, 2, {"a": null}]}',
    b'[{"a": 1}, {"b": 2}]',
    SERDES["avro"].serialize({**_LEAF, "leaves": [_LEAF, _LEAF], "next": _LEAF}),
    Struct(fields={"a": {"string_value": "b"}}).SerializeToString(),  # type: ignore[dict-item]  # takes it
    SERDES["list-of-longs"].serialize([1, None, 3]),
    SERDES["list-of-texts"].serialize(["a", None, "bc"]),
    SERDES["session"].serialize(Windowed("key", Window(5, 9))),
    SERDES["uuid"].serialize(UUID(int=7)),
    "Grüße, 世界 🙂".encode(),
    bytes(8),
    b"\x00\x00\x00\x01",
    b"\x01",
    b"plain text",
)
"""Valid output of serdes; a flipped bit makes most of it wrong."""

NASTY: tuple[bytes, ...] = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf{}",
    b"NaN",
    b"-Infinity",
    b"1e999999",
    b"9" * 5_000,
    b'"\\ud800"',
    b'"\\ud800\\udc00"',
    b"[" * 50_000,
    b"[" * 50_000 + b"]" * 50_000,
    b'{"a":' * 50_000,
    b'{"a": 1, "a": 2}',
    b"\x02" * 20_000,
    b"\x0a" * 20_000,
    b"\xff" * 40,
    b"\x01\x7f\xff\xff\xff",
    b"\x00\x7f\xff\xff\xff\x7f\xff\xff\xff",
    b"\x00\x80\x00\x00\x00",
    (2**63 - 1).to_bytes(8),
    b"\x7f\xf8\x00\x00\x00\x00\x00\x01",
    b"cposix\nsystem\n(S'true'\ntR.",
)
"""Values that are known to break readers."""

NAMES = ("", "\x00", "a" * 1_000, "🙂", "__streams.errors.message", "traceparent", "\u202e", "a\nb")
"""Names of headers."""

TIMESTAMPS = (0, 1, 2**53, 10**18, 2**63 - 2, 2**63 - 1)
_TODAY = range(1_700_000_000_000, 1_700_000_060_000, 250)

_HUGE = 300_000

Hostile = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]
"""Key, value, timestamp, headers."""


def hostile_payloads(seed: int) -> Iterator[bytes]:
    """Yield payloads without end, each seed its own."""
    chance = random.Random(seed)
    kinds: tuple[Callable[[random.Random], bytes], ...] = (_flipped, _cut, _noise, _unchanged)
    while True:
        rare = chance.random()
        if rare < 0.0005:
            yield chance.randbytes(_HUGE)
        elif rare < 0.02:
            yield chance.choice(NASTY)
        else:
            yield chance.choice(kinds)(chance)


def hostile_records(seed: int) -> Iterator[Hostile]:
    """Yield records without end, each seed its own."""
    chance = random.Random(seed)
    payloads = hostile_payloads(seed)
    while True:
        kind = chance.random()
        key = b"key-%d" % chance.randrange(99) if kind < 0.5 else next(payloads)
        value = next(payloads)
        # Records after one from the far future are late.
        timestamp = chance.choice(TIMESTAMPS if chance.random() < 0.0005 else _TODAY)
        yield (
            None if kind > 0.95 else key,
            None if chance.random() < 0.05 else value,
            timestamp,
            _headers(chance),
        )


def _headers(chance: random.Random) -> list[tuple[str, bytes | None]]:
    if chance.random() < 0.7:
        return []
    return [
        (chance.choice(NAMES), chance.choice((None, b"", chance.randbytes(9), b"\xff" * 100)))
        for _ in range(chance.randrange(1, 4))
    ]


def _flipped(chance: random.Random) -> bytes:
    data = bytearray(chance.choice(VALID))
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _cut(chance: random.Random) -> bytes:
    data, other = chance.choice(VALID), chance.choice(VALID)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def _noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((1, 2, 4, 8, 16, 36, 100)))


def _unchanged(chance: random.Random) -> bytes:
    return chance.choice((*VALID, json.dumps(chance.random()).encode()))


TOPICS = ("avro", "json", "json-lists", "long", "protobuf", "session", "text", "windowed")
"""Input topics; each is read with the serde it is named after, and written with it again."""
INPUTS = (*TOPICS, "counted")


def refuse_some(value: Any) -> Any:
    """Fail on some values, with words that UTF-8 cannot write."""
    if value is None or len(str(value)) % 3 == 0:
        raise ValueError("\udcff" + str(value)[:50])
    return value


def hostile_topology() -> Topology:
    """Each topic goes through user code to one of its own; the counts have state and windows."""
    builder = StreamsBuilder()
    for topic in TOPICS:
        serde = SERDES[topic]
        builder.stream(topic, key=StringSerde(), value=serde, name=f"read-{topic}").map_values(
            refuse_some, value=serde, name=f"work-{topic}"
        ).to(f"out-{topic}")
    builder.stream("counted", key=StringSerde(), value=SERDES["bytes"], name="read-counted").filter(
        lambda _key, _value: True, name="work-counted"
    ).group_by_key().windowed_by(TimeWindows("1s", grace="1d")).count(
        name="count", materialized="counts"
    ).to_stream().to("out-counted")
    return builder.build()


def fuzzed(topic: str, count: int) -> Iterator[Hostile]:
    """Yield what an input topic holds."""
    return islice(hostile_records(INPUTS.index(topic)), count)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


def bombs(bomb: Bomb) -> list[bytes]:
    """Return a bomb in the forms that pickles have."""
    return [pickle.dumps(bomb, protocol) for protocol in (0, 2, 5)]
