"""`rename="camel"`: fields change their spelling, data does not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import pytest
from msgspec import Meta, Struct
from pydantic import BaseModel

from headrace.errors import TopologyError
from headrace.serdes import JsonSerde


@dataclass
class LineItem:
    unit_price: Decimal
    tags_by_name: dict[str, int] = field(default_factory=dict)


class HomeAddress(TypedDict):
    street_name: str
    flat_number: NotRequired[int]


class Position(NamedTuple):
    line_item: LineItem
    is_last: bool


@dataclass
class CustomerOrder:
    order_id: int
    line_items: list[LineItem]
    home_address: HomeAddress | None = None
    by_name: dict[str, LineItem] = field(default_factory=dict)
    ordered_date_time: datetime | None = None
    first_and_last: tuple[LineItem, int] | None = None
    last_position: Position | None = None
    some_numbers: Annotated[set[int], Meta(max_length=9)] = field(default_factory=set)
    part_orders: list[CustomerOrder] = field(default_factory=list)


class Wrapped(Struct):
    line_item: LineItem
    its_count: int = 1


class Circle(Struct, tag=True):
    its_item: LineItem


class Square(Struct, tag=True):
    its_item: list[LineItem]


class Row(Struct, array_like=True):
    its_count: int
    line_item: LineItem


class TaggedRow(Struct, array_like=True, tag="row"):
    line_item: LineItem


@dataclass
class Shape:
    the_shape: Circle | Square


@dataclass
class LooseOrder:
    unit_price: Decimal
    any_thing: Any


ITEM = LineItem(Decimal("1.50"), {"first_tag": 1})
ITEM_JSON = {"unitPrice": 1.5, "tagsByName": {"first_tag": 1}}

EXAMPLES: list[tuple[Any, Any, Any]] = [
    (LineItem, ITEM, ITEM_JSON),
    (HomeAddress, {"street_name": "Main"}, {"streetName": "Main"}),
    (list[LineItem], [ITEM], [ITEM_JSON]),
    (dict[str, LineItem], {"some_key": ITEM}, {"some_key": ITEM_JSON}),
    (Annotated[LineItem, Meta(description="one line")], ITEM, ITEM_JSON),
    (dict[int, LineItem], {5: ITEM}, {"5": ITEM_JSON}),
    (LineItem | list[LineItem], ITEM, ITEM_JSON),
    (LineItem | list[LineItem], [ITEM], [ITEM_JSON]),
    (LineItem | int, 5, 5),
    (dict[str, LineItem] | int, 5, 5),
    (list[LineItem] | int, 5, 5),
    (tuple[LineItem, int] | int, 5, 5),
    (Wrapped, Wrapped(ITEM), {"line_item": ITEM_JSON, "its_count": 1}),
    (Wrapped | int, 5, 5),
    (Row, Row(1, ITEM), [1, ITEM_JSON]),
    (TaggedRow, TaggedRow(ITEM), ["row", ITEM_JSON]),
    (Shape, Shape(Circle(ITEM)), {"theShape": {"type": "Circle", "its_item": ITEM_JSON}}),
    (Shape, Shape(Square([ITEM])), {"theShape": {"type": "Square", "its_item": [ITEM_JSON]}}),
    (
        CustomerOrder,
        CustomerOrder(
            1,
            [ITEM],
            {"street_name": "Main", "flat_number": 5},
            {"some_key": ITEM},
            datetime(2022, 12, 5, tzinfo=UTC),
            (ITEM, 2),
            Position(ITEM, is_last=True),
            {5},
            [CustomerOrder(2, [])],
        ),
        {
            "orderId": 1,
            "lineItems": [ITEM_JSON],
            "homeAddress": {"streetName": "Main", "flatNumber": 5},
            "byName": {"some_key": ITEM_JSON},
            "orderedDateTime": "2022-12-05T00:00:00Z",
            "firstAndLast": [ITEM_JSON, 2],
            "lastPosition": [ITEM_JSON, True],
            "someNumbers": [5],
            "partOrders": [
                {
                    "orderId": 2,
                    "lineItems": [],
                    "homeAddress": None,
                    "byName": {},
                    "orderedDateTime": None,
                    "firstAndLast": None,
                    "lastPosition": None,
                    "someNumbers": [],
                    "partOrders": [],
                }
            ],
        },
    ),
]


@pytest.mark.parametrize(("type_", "value", "expected"), EXAMPLES)
def test_fields_are_camel_case_in_bytes_and_nothing_else_is(
    type_: object, value: object, expected: object
) -> None:
    serde = JsonSerde(type_, rename="camel")

    data = serde.serialize(value)

    assert json.loads(data) == expected
    assert serde.deserialize(data) == value


def test_defaults_stand_in_for_what_is_missing() -> None:
    serde = JsonSerde(CustomerOrder, rename="camel")

    assert serde.deserialize(b'{"orderId":1,"lineItems":[]}') == CustomerOrder(1, [])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"order_id":1,"lineItems":[]}', "missing required field `order_id`"),
        (b'{"orderId":"x","lineItems":[]}', "Expected `int`, got `str` - at `[$].order_id`"),
        (b'{"orderId":1,"lineItems":[5]}', "got `int` - at `[$].line_items\\[0\\]`"),
        (b'{"orderId":1,"lineItems":{}}', "Expected `array`, got `object` - at `[$].line_items`"),
        (b'{"orderId":1,"lineItems":[],"byName":[]}', "got `array` - at `[$].by_name`"),
        (b'{"orderId":1,"lineItems":[],"lastPosition":{}}', "got `object` - at"),
        (b'{"orderId":1,"lineItems":[],"lastPosition":[]}', "Expected `array` of length 2, got 0"),
        (b"5", "Expected `object`, got `int`"),
        (b"{", "The data is not JSON"),
    ],
)
def test_data_that_does_not_fit_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        JsonSerde(CustomerOrder, rename="camel").deserialize(data)


def test_numbers_that_become_decimals_keep_all_digits() -> None:
    serde = JsonSerde(LineItem, rename="camel")

    read = serde.deserialize(b'{"unitPrice":1.2345678901234567890123456789}')

    assert read.unit_price == Decimal("1.2345678901234567890123456789")


def test_numbers_of_no_type_stay_floats() -> None:
    read = JsonSerde(LooseOrder, rename="camel").deserialize(b'{"unitPrice":1.5,"anyThing":2.5}')

    assert read == LooseOrder(Decimal("1.5"), 2.5)
    assert type(read.any_thing) is float


class Model(BaseModel):
    some_field: int


class Own(Struct, rename="camel"):
    some_field: int


@pytest.mark.parametrize("type_", [None, dict, Own, list[int], Model])
def test_a_type_without_fields_to_rename_is_refused(type_: object) -> None:
    with pytest.raises(TopologyError, match="`rename` is for dataclasses and TypedDicts"):
        JsonSerde(type_, rename="camel")


def test_two_fields_must_not_become_one() -> None:
    @dataclass
    class Twice:
        some_field: int
        someField: int  # noqa: N815

    with pytest.raises(
        TopologyError, match="The fields of Twice cannot be renamed: Multiple fields"
    ):
        JsonSerde(Twice, rename="camel")


def test_there_is_no_other_renaming() -> None:
    with pytest.raises(TopologyError, match=r"`rename` is 'kebab'. It can only be"):
        JsonSerde(LineItem, rename="kebab")  # type: ignore[call-overload]  # what the test is about
