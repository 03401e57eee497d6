"""Hostile records of each input topic: a seed and a number decide each of them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

from tests.hostile import NAMES, NASTY, VALID

LARGEST_BYTES = 3_000_000
"""The size of the largest values, and of what the worst compressed ones expand to."""

KEYS = 50
_RARE = 0.005
_ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp037", "shift_jis", "utf-7")
_TEXTS = ("Grüße", "plain", "£ 5 à la carte", "\x1b[2J\x07", "\u202eevil", "a\x00b", "ﷺ" * 50)
_SIZES = (0, 1, 255, 1_000, 16_384, 65_536, 200_000)
_EDGES = (1_048_400, 1_048_500, 1_048_588, 1_048_600, LARGEST_BYTES)
"""Sizes around the `max.message.bytes` of a topic, and beyond."""
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""
_PACKERS: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    zlib.compress,
    bz2.compress,
    lzma.compress,
)
_BOMBS = {size: zlib.compress(bytes(size)) for size in (100_000, LARGEST_BYTES)}

_TREE = VALID[2]
"""A valid value of the Avro serde that reads this topic."""

Headers = list[tuple[str, bytes | None]]


class HostileRecord(NamedTuple):
    """A record for an input topic."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


def hostile_record(topic: str, seed: int, number: int, count: int) -> HostileRecord:
    """Return record ``number`` of ``count`` of a topic."""
    chance = Random(f"{seed}/{topic}/{number}")
    timestamp = chance.choice((0, 1, 2**53, _LAST_MS, chance.randrange(_LAST_MS)))
    if topic == "dated":
        timestamp = 1
    value = None if chance.random() < 0.02 else _VALUES[topic](chance, number / count)
    headers = _headers(chance, many=topic == "headed")
    return HostileRecord(_key(chance), value, timestamp, headers)


def _key(chance: Random) -> bytes | None:
    kind = chance.random()
    if kind < 0.03:
        return None
    return chance.choice(NASTY)[:1_000] if kind < 0.06 else b"key-%d" % chance.randrange(KEYS)


def _headers(chance: Random, *, many: bool) -> Headers:
    if many and chance.random() < _RARE:
        return [("large", chance.randbytes(LARGEST_BYTES // 2))]
    if many and chance.random() < 10 * _RARE:
        return [(chance.choice(NAMES), chance.randbytes(9)) for _ in range(1_000)]
    if chance.random() < 0.7:
        return []
    values = (None, b"", chance.randbytes(9), b"\xff" * 100)
    return [(chance.choice(NAMES), chance.choice(values)) for _ in range(chance.randrange(1, 4))]


def _text(chance: Random, _share: float) -> bytes:
    if chance.random() < 0.1:
        return chance.choice(NASTY)
    return chance.choice(_TEXTS).encode(chance.choice(_ENCODINGS), errors="ignore")


def _nested(chance: Random, _share: float) -> bytes:
    kind = chance.random()
    if kind < _RARE:
        return chance.choice(NASTY)
    depth = chance.choice((0, 1, 5, 100, 900)) if kind < 0.99 else 50_000
    begin, end = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return begin * depth + b"1" + end * (depth if chance.random() < 0.8 else depth // 2)


def _broken(chance: Random, _share: float) -> bytes:
    data = bytearray(chance.choice((_TREE, chance.choice(VALID))))
    for _ in range(chance.randrange(4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data[: chance.choice((len(data), chance.randrange(len(data) + 1)))])


def _packed(chance: Random, _share: float) -> bytes:
    kind = chance.random()
    if kind < 10 * _RARE:
        return _BOMBS[LARGEST_BYTES if kind < _RARE else 100_000]
    data = chance.choice(_PACKERS)(chance.choice(VALID))
    return data[: chance.choice((len(data), len(data), chance.randrange(len(data))))]


def _dated(chance: Random, share: float) -> bytes:
    """Return a date: mostly a day that moves from 1970 to 9999, or one before 1970, or late."""
    kind = chance.random()
    is_late = kind > 0.9
    moment = timedelta(milliseconds=int(_LAST_MS * share * (0.5 if is_late else 1)))
    if kind < 0.05:
        return b'"0001-01-01T00:00:00+00:00"' if kind < 0.025 else b'"1969-12-31T23:59:59+00:00"'
    if kind < 0.1:
        return chance.choice(NASTY)
    return json.dumps((datetime(1970, 1, 1, tzinfo=UTC) + moment).isoformat()).encode()


def _chosen(chance: Random, _share: float) -> bytes:
    names = (b"no-such-topic", b"no/name", b"..", b"a" * 300, "ü".encode())
    return b"" if chance.random() < 0.8 else chance.choice(names)


def _sized(chance: Random, _share: float) -> bytes:
    rare = chance.random() < _RARE
    return chance.randbytes(1) * chance.choice(_EDGES if rare else _SIZES)


def _number(chance: Random, _share: float) -> bytes:
    return chance.choice(
        (b"1", b"-7", b"0", b"1e400", b"NaN", b"99999999999999999999", b"3.5", b'"')
    )


_VALUES: dict[str, Callable[[Random, float], bytes]] = {
    "text": _text,
    "nested": _nested,
    "broken": _broken,
    "packed": _packed,
    "dated": _dated,
    "chosen": _chosen,
    "sized": _sized,
    "headed": lambda chance, _: b"v%d" % chance.randrange(9),
    "retimed": _dated,
    "numbers": _number,
    "counted": _text,
}
TOPICS = tuple(_VALUES)
"""The input topics."""
