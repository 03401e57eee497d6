"""The columns that typed values get in SQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import pydantic
from google.protobuf.type_pb2 import EnumValue
from msgspec import Struct

from headrace.queries.catalog import QueryableStore
from headrace.queries.reads import Row
from headrace.queries.sql import SqlEngine
from headrace.serdes import AvroSerde, JsonSerde
from tests.unit.queries.listed_rows import ListedRows, listed_store, row


class Kind(Enum):
    BIG = "big"


class Inner(Struct):
    x: int


class Everything(Struct, rename="camel"):
    whole_number: int
    real: float
    is_open: bool
    text: str
    price: Decimal
    at: datetime
    day: date
    id: UUID
    kind: Kind
    data: bytes
    inner: Inner
    tags: list[str]
    anything: Any
    nothing: int | None = None


EVERYTHING = Everything(
    5,
    1.5,
    True,
    "abc",
    Decimal("12.50"),
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    date(2026, 1, 2),
    UUID(int=1),
    Kind.BIG,
    b"\x01",
    Inner(7),
    ["x"],
    {"y": [1]},
)


class Plain(TypedDict):
    key: str
    Value: int


@dataclass
class Order:
    unit_price: float
    Key: str


class Model(pydantic.BaseModel):
    amount: int
    note: str | None = pydantic.Field(default=None, alias="theNote")


def _all(store: QueryableStore, *values: Any, where: str = "") -> tuple[tuple[str, ...], list[Any]]:
    rows = [row(store, f"k{index}", value) for index, value in enumerate(values)]
    return _all_rows(store, rows, where)


def _all_rows(
    store: QueryableStore, rows: list[Row], where: str = ""
) -> tuple[tuple[str, ...], list[Any]]:
    source = ListedRows({store.name: rows})
    return SqlEngine([store]).run(f"SELECT * FROM {store.name} {where}", None, source.open)


def test_every_type_of_field_becomes_an_sql_value() -> None:
    columns, rows = _all(listed_store("s", str, Everything), EVERYTHING)

    found = dict(zip(columns, rows[0], strict=True))
    del found["key"], found["value"]
    assert found == {
        "wholeNumber": 5,
        "real": 1.5,
        "isOpen": 1,
        "text": "abc",
        "price": 12.5,
        "at": "2026-01-02T03:04:05Z",
        "day": "2026-01-02",
        "id": "00000000-0000-0000-0000-000000000001",
        "kind": "big",
        "data": "AQ==",
        "inner": '{"x":7}',
        "tags": '["x"]',
        "anything": '{"y":[1]}',
        "nothing": None,
    }


def test_a_field_whose_name_is_taken_gets_an_underscore() -> None:
    columns, rows = _all(listed_store("s", str, Plain), Plain(key="a", Value=3))
    assert columns == ("key", "value", "key_", "Value_")
    assert rows == [("k0", '{"Value":3,"key":"a"}', "a", 3)]

    store = listed_store("s", str, JsonSerde(Order, rename="camel"))
    columns, rows = _all(store, Order(1.5, "b"))
    assert columns[2:] == ("unitPrice", "Key_")
    assert rows[0][2:] == (1.5, "b")


def test_models_records_and_messages_have_fields() -> None:
    columns, rows = _all(listed_store("s", str, Model), Model(amount=3, theNote="x"))
    assert (columns[2:], rows[0][2:]) == (("amount", "theNote"), (3, "x"))

    fields = [
        {"name": "n", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {"name": "u", "type": ["int", "string"]},
    ]
    avro = AvroSerde({"type": "record", "name": "r", "fields": fields})
    store = listed_store("s", str, avro)
    columns, rows = _all(store, {"n": 2**40, "s": None, "m": {"a": 1}, "u": "x"})
    assert (columns[2:], rows[0][2:]) == (("n", "s", "m", "u"), (2**40, None, '{"a":1}', "x"))

    columns, rows = _all(listed_store("s", str, EnumValue), EnumValue(name="a"))
    assert columns[2:] == ("name", "number", "options")
    assert rows[0][2:] == ("a", 0, "[]")


def test_typed_avro_has_the_fields_of_its_type() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "long"}]}
    store = listed_store("s", str, AvroSerde(schema, Inner))

    assert _all(store, Inner(4)) == (("key", "value", "x"), [("k0", '{"x":4}', 4)])


def test_values_without_fields_are_numbers_text_bytes_or_json() -> None:
    cases: list[tuple[Any, Any, Any]] = [
        (int, 5, 5),
        (float, 1.5, 1.5),
        (bool, True, 1),
        (str, "a", "a"),
        (bytes, b"a", b"a"),
        (UUID, UUID(int=1), str(UUID(int=1))),
        (JsonSerde(int), 5, 5),
        (JsonSerde(), {"a": 1}, '{"a":1}'),
        (list[int], [1, 2], "[1,2]"),
        (JsonSerde(Inner | str), Inner(1), '{"x":1}'),
    ]
    for type_, value, expected in cases:
        columns, rows = _all(listed_store("s", str, type_), value)
        assert (columns, rows) == (("key", "value"), [("k0", expected)]), type_


def test_data_that_does_not_fit_its_type_is_shown_and_harms_no_other_row() -> None:
    store = listed_store("s", str, Everything)
    good = row(store, "good", EVERYTHING)
    others = [
        Row(
            b"other",
            b'{"wholeNumber":"many","text":{"a":1},"real":%d}' % 2**70,
            None,
            None,
            None,
            b"",
        ),
        Row(b"list", b"[1]", None, None, None, b""),
        Row(b"none", b"{", None, None, None, b""),
    ]

    columns, rows = _all_rows(store, [good, *others])

    by_key = {each[0]: dict(zip(columns, each, strict=True)) for each in rows}
    assert by_key["good"]["wholeNumber"] == 5
    assert by_key["other"]["wholeNumber"] == "many"
    assert by_key["other"]["text"] == '{"a":1}'
    assert by_key["other"]["real"] == float(2**70)
    assert by_key["list"]["text"] is None
    assert '"$hex":"7b"' in by_key["none"]["value"]

    numbers = listed_store("s", int, int)
    wrong = Row(b"123", b"\x00", None, None, None, b"")
    _, rows = _all_rows(numbers, [row(numbers, 1, 2), wrong])
    assert rows[0] == (1, 2)
    assert '"$hex":"00"' in rows[1][1]


def test_a_structured_key_is_json_text_that_equality_finds() -> None:
    store = listed_store("s", Inner, int)
    source = ListedRows({"s": [row(store, Inner(index), index) for index in range(3)]})

    found = SqlEngine([store]).run("SELECT value FROM s WHERE key = ?", ['{"x":1}'], source.open)

    assert found.rows == [(1,)]
    assert len(source.operations) == 1
    text = "SELECT count(*) FROM s WHERE key >= ? AND key ->> 'x' < 5"
    assert SqlEngine([store]).run(text, ["{"], source.open).rows == [(3,)]


def test_a_table_may_have_more_columns_than_sqlite_can_mark_as_used() -> None:
    fields = {f"f{index}": int for index in range(100)}
    wide = TypedDict("wide", fields)  # type: ignore[misc]
    store = listed_store("s", str, wide)
    source = ListedRows({"s": [row(store, "a", dict.fromkeys(fields, 7))]})

    assert SqlEngine([store]).run("SELECT f99 + f2 FROM s", None, source.open).rows == [(14,)]
