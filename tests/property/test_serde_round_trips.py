"""Every written value is read back, and any bytes are read and written back, or refused."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    StringSerde,
    TimeWindowedSerde,
    UuidSerde,
)
from headrace.serdes.partitioner import murmur2, partition_for_key
from headrace.windows.window import Window, Windowed

MAX = 2**63 - 1


@dataclass
class LineItem:
    unit_price: Decimal
    item_name: str


@dataclass
class Order:
    order_id: int
    line_items: list[LineItem] = field(default_factory=list)
    by_name: dict[str, LineItem] = field(default_factory=dict)
    ordered_at: datetime | None = None


texts = st.text(st.characters(exclude_categories=["Cs"]))
decimals = st.decimals(allow_nan=False, allow_infinity=False)
line_items = st.builds(LineItem, decimals, texts)
orders = st.builds(
    Order,
    st.integers(),
    st.lists(line_items, max_size=3),
    st.dictionaries(texts, line_items, max_size=3),
    st.none() | st.datetimes(timezones=st.just(UTC)),
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)
windows = st.tuples(st.integers(0, MAX), st.integers(0, MAX)).map(
    lambda ends: Window(*sorted(ends))
)

AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "long"},
        {"name": "weight", "type": ["null", "double"]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}
avro_orders = st.fixed_dictionaries(
    {
        "order_id": st.integers(-(2**63), MAX),
        "weight": st.none() | st.floats(allow_nan=False),
        "tags": st.dictionaries(texts, texts, max_size=3),
    }
)

ROUND_TRIPS: list[tuple[Serde[Any], st.SearchStrategy[Any]]] = [
    (StringSerde(), texts),
    (BytesSerde(), st.binary()),
    (ShortSerde(), st.integers(-(2**15), 2**15 - 1)),
    (IntegerSerde(), st.integers(-(2**31), 2**31 - 1)),
    (LongSerde(), st.integers(-(2**63), MAX)),
    (FloatSerde(), st.floats(width=32, allow_nan=False)),
    (DoubleSerde(), st.floats(allow_nan=False)),
    (BooleanSerde(), st.booleans()),
    (UuidSerde(), st.uuids(allow_nil=True)),
    (ListSerde(LongSerde()), st.lists(st.none() | st.integers(-(2**63), MAX))),
    (ListSerde(UuidSerde()), st.lists(st.none() | st.uuids())),
    (ListSerde(StringSerde()), st.lists(st.none() | texts)),
    (ListSerde(ListSerde(ShortSerde())), st.lists(st.lists(st.none() | st.just(7)))),
    (SessionWindowedSerde(StringSerde()), st.builds(Windowed, texts, windows)),
    (JsonSerde(), json_values),
    (JsonSerde(Order), orders),
    (JsonSerde(Order, rename="camel"), orders),
    (JsonSerde(dict[int, Order]), st.dictionaries(st.integers(), orders, max_size=2)),
    (AvroSerde(AVRO_ORDER), avro_orders),
]


@pytest.mark.parametrize(("serde", "values"), ROUND_TRIPS, ids=repr)
def test_a_written_value_is_read_back(serde: Serde[Any], values: st.SearchStrategy[Any]) -> None:
    @given(values)
    def holds(value: Any) -> None:
        assert serde.deserialize(serde.serialize(value)) == value

    holds()


@given(key=texts, start=st.integers(0, MAX), size=st.integers(1, MAX))
def test_a_time_window_is_read_back_from_its_start(key: str, start: int, size: int) -> None:
    serde = TimeWindowedSerde(StringSerde(), size)
    windowed = Windowed(key, Window(start, min(start + size, MAX)))

    assert serde.deserialize(serde.serialize(windowed)) == windowed


REFUSING: list[Serde[Any]] = [
    serde for serde, _ in ROUND_TRIPS if not isinstance(serde, JsonSerde | AvroSerde)
]


@pytest.mark.parametrize("serde", [*REFUSING, TimeWindowedSerde(LongSerde(), 5)], ids=repr)
def test_any_bytes_are_read_and_written_back_or_refused(serde: Serde[Any]) -> None:
    @given(st.binary(max_size=40))
    def holds(data: bytes) -> None:
        read = _read_or_refused(serde, data)
        for value in read:
            again = serde.deserialize(serde.serialize(value))
            assert again == value or math.isnan(value)

    holds()


@given(st.binary(max_size=40))
def test_any_bytes_are_json_or_avro_or_refused(data: bytes) -> None:
    for serde in (JsonSerde(), JsonSerde(Order, rename="camel"), AvroSerde(AVRO_ORDER)):
        _read_or_refused(serde, data)


def _read_or_refused(serde: Serde[Any], data: bytes) -> list[Any]:
    """Return the value, if there is one; a refusal must be one of those the engine expects."""
    try:
        return [serde.deserialize(data)]
    except ValueError:
        return []


@given(st.integers())
def test_a_long_is_written_if_and_only_if_it_has_64_bits(number: int) -> None:
    if -(2**63) <= number <= MAX:
        assert LongSerde().serialize(number) == struct.pack(">q", number)
    else:
        with pytest.raises(ValueError, match="LongSerde holds"):
            LongSerde().serialize(number)


@given(st.dictionaries(texts, st.integers()), st.randoms())
def test_equal_dicts_have_equal_json(value: dict[str, int], random: Any) -> None:
    names = list(value)
    random.shuffle(names)

    assert JsonSerde().serialize({name: value[name] for name in names}) == JsonSerde().serialize(
        value
    )


@given(st.binary(max_size=300))
def test_the_hash_is_that_of_the_algorithm_as_it_is_described(data: bytes) -> None:
    assert murmur2(data) == _murmur2_word_by_word(data)


@given(st.binary(), st.integers(1, 1000))
def test_every_key_has_one_of_the_partitions(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions
    assert partition_for_key(key, 1) == 0


def _murmur2_word_by_word(data: bytes) -> int:
    """Return the hash as Austin Appleby's description computes it, in 32-bit steps."""

    def times(a: int, b: int) -> int:
        return a * b % 2**32

    hashed = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        word = times(int.from_bytes(data[start : start + 4], "little"), 0x5BD1E995)
        word = times(word ^ (word >> 24), 0x5BD1E995)
        hashed = times(hashed, 0x5BD1E995) ^ word
    for position, byte in reversed(list(enumerate(data[whole:]))):
        hashed ^= byte << (8 * position)
    if whole < len(data):
        hashed = times(hashed, 0x5BD1E995)
    hashed = times(hashed ^ (hashed >> 13), 0x5BD1E995)
    hashed ^= hashed >> 15
    return hashed - 2**32 if hashed >= 2**31 else hashed


def test_a_uuid_is_written_as_its_text() -> None:
    @given(st.uuids(allow_nil=True))
    def holds(value: UUID) -> None:
        assert UuidSerde().serialize(value) == str(value).encode()

    holds()
