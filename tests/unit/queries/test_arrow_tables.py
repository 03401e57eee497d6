"""Rows of stores as Arrow tables."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypedDict
from uuid import UUID

import pyarrow as pa
import pydantic
import pytest
from google.protobuf.type_pb2 import EnumValue
from msgspec import Struct

from headrace.queries.catalog import QueryableStore
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import Row
from headrace.queries.tables.arrow_tables import ArrowStream, arrow_table
from headrace.serdes import JsonSerde, Serdes
from tests.unit.queries.listed_rows import listed_store, row


class Kind(Enum):
    BIG = "big"


class Inner(Struct, rename="camel"):
    unit_price: float
    at: date


class Tree(Struct):
    children: list[Tree]


class Everything(Struct, kw_only=True):
    whole: int
    real: float
    is_open: bool
    text: str
    price: Decimal
    at: datetime
    day: date
    clock: time
    id: UUID
    kind: Kind
    level: Literal[1, 2]
    mixed: Literal[1, "a"]
    data: bytes
    inner: Inner
    inners: list[Inner]
    tags: set[str]
    anything: Any
    either: int | str
    counts: dict[str, int]
    tree: Tree
    trees: list[Any]
    nothing: int | None = None


EVERYTHING = Everything(
    whole=5,
    real=1.5,
    is_open=True,
    text="abc",
    price=Decimal("12.50"),
    at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    day=date(2026, 1, 2),
    clock=time(1, 2),
    id=UUID(int=1),
    kind=Kind.BIG,
    level=2,
    mixed="a",
    data=b"\x01",
    inner=Inner(2.5, date(2026, 1, 3)),
    inners=[Inner(3.5, date(2026, 1, 4))],
    tags={"x"},
    anything={"y": [1]},
    either="z",
    counts={"a": 1},
    tree=Tree([Tree([])]),
    trees=[None],
)


@dataclass
class Order:
    unit_price: float
    key: str
    parts: list[Order]


class Part(TypedDict):
    part_name: str


@dataclass
class Box:
    main_part: Part


class Model(pydantic.BaseModel):
    amount: int
    note: str | None = pydantic.Field(default=None, alias="theNote")


def _table(store: QueryableStore, *values: Any, **times: int) -> pa.Table:
    rows = [row(store, f"k{index}", value, **times) for index, value in enumerate(values)]
    return arrow_table(store, rows)


def test_every_type_of_field_becomes_a_typed_column() -> None:
    table = _table(listed_store("s", str, Everything), EVERYTHING)

    [found] = table.to_pylist()
    assert found == {
        "key": "k0",
        "whole": 5,
        "real": 1.5,
        "is_open": True,
        "text": "abc",
        "price": Decimal("12.50"),
        "at": EVERYTHING.at,
        "day": EVERYTHING.day,
        "clock": EVERYTHING.clock,
        "id": str(UUID(int=1)),
        "kind": "big",
        "level": 2,
        "mixed": '"a"',
        "data": b"\x01",
        "inner": {"unitPrice": 2.5, "at": date(2026, 1, 3)},
        "inners": [{"unitPrice": 3.5, "at": date(2026, 1, 4)}],
        "tags": ["x"],
        "anything": '{"y":[1]}',
        "either": '"z"',
        "counts": '{"a":1}',
        "tree": '{"children":[{"children":[]}]}',
        "trees": "[null]",
        "nothing": None,
    }
    types = {field.name: field.type for field in table.schema}
    assert types["whole"] == pa.int64()
    assert types["price"] == pa.decimal128(38, 18)
    assert types["at"] == pa.timestamp("us", tz="UTC")
    assert types["inners"] == pa.list_(types["inner"])


def test_a_column_has_the_name_that_it_has_in_json() -> None:
    orders = listed_store("s", str, JsonSerde(Order, rename="camel"))
    table = _table(orders, Order(1.5, "a", []))
    assert table.column_names == ["key", "unitPrice", "key_", "parts"]
    assert table.to_pylist() == [{"key": "k0", "unitPrice": 1.5, "key_": "a", "parts": "[]"}]

    boxes = listed_store("s", str, JsonSerde(Box, rename="camel"))
    table = _table(boxes, Box({"part_name": "x"}))
    assert table.to_pylist() == [{"key": "k0", "mainPart": {"partName": "x"}}]

    table = _table(listed_store("s", str, Model), Model(amount=1, theNote="x"))
    assert table.to_pylist() == [{"key": "k0", "amount": 1, "theNote": "x"}]


def test_messages_have_columns() -> None:
    table = _table(listed_store("s", str, EnumValue), EnumValue(name="a", number=3))

    assert table.to_pylist() == [{"key": "k0", "name": "a", "number": 3, "options": "[]"}]


def test_each_kind_of_store_has_its_columns_of_times() -> None:
    times = {"timestamp": 1, "start": 2, "end": 3}
    expected: dict[Any, dict[str, int]] = {
        "key_value": {},
        "timestamped_key_value": {"timestamp": 1},
        "window": {"window_start": 2, "window_end": 3},
        "timestamped_window": {"timestamp": 1, "window_start": 2, "window_end": 3},
        "session": {"window_start": 2, "window_end": 3},
        "versioned_key_value": {"valid_from": 2},
    }
    for kind, columns in expected.items():
        [found] = _table(listed_store("s", str, int, kind), 7, **times).to_pylist()
        plain = {"key": "k0", "value": 7}
        times_found = {
            name: int(value.timestamp() * 1000)
            for name, value in found.items()
            if name not in plain
        }
        assert {name: found[name] for name in plain} == plain
        assert times_found == columns


def test_keys_and_values_without_fields_have_their_own_types() -> None:
    cases: list[tuple[Any, Any, Any, pa.DataType]] = [
        (int, 5, 5, pa.int64()),
        (Serdes.integer(), 5, 5, pa.int32()),
        (float, 1.5, 1.5, pa.float64()),
        (bool, True, True, pa.bool_()),
        (str, "a", "a", pa.string()),
        (bytes, b"a", b"a", pa.binary()),
        (UUID, UUID(int=1), str(UUID(int=1)), pa.string()),
        (JsonSerde(int), 5, 5, pa.int64()),
        (list[int], [1, 2], [1, 2], pa.list_(pa.int64())),
        (JsonSerde(), {"a": 1}, '{"a":1}', pa.string()),
    ]
    for type_, value, expected, arrow_type in cases:
        store = listed_store("s", type_, type_)
        table = arrow_table(store, [row(store, value, value)])
        assert table.schema.types == [arrow_type, arrow_type], type_
        assert table.to_pylist() == [{"key": expected, "value": expected}]
    store = listed_store("s", Inner, int)
    table = arrow_table(store, [row(store, EVERYTHING.inner, 1)])
    assert table.column("key").to_pylist() == ['{"unitPrice":2.5,"at":"2026-01-03"}']


def test_data_that_does_not_fit_is_refused() -> None:
    store = listed_store("s", str, Inner)

    with pytest.raises(QueryProblemError, match="Store 's' has data that does not fit") as caught:
        arrow_table(store, [Row(b"a", b'{"unitPrice":[]}', None, None, None, b"")])
    assert caught.value.code is ProblemCode.BAD_REQUEST

    with pytest.raises(QueryProblemError, match="does not fit its type"):
        arrow_table(listed_store("s", str, int), [Row(b"a", b"x", None, None, None, b"")])


def test_a_stream_has_all_rows_in_parts() -> None:
    store = listed_store("s", str, int)
    stream = ArrowStream(store)

    parts = [stream.write([row(store, f"k{each}", each)]) for each in range(3)]
    parts.append(stream.end())

    with pa.ipc.open_stream(io.BytesIO(b"".join(parts))) as reader:
        assert reader.read_all().column("value").to_pylist() == [0, 1, 2]


def test_an_empty_store_is_an_empty_table_and_stream() -> None:
    store = listed_store("s", str, int)

    assert arrow_table(store, []).num_rows == 0
    with pa.ipc.open_stream(ArrowStream(store).end()) as reader:
        assert reader.schema.names == ["key", "value"]
