"""JSON of any shape, and of one type."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import pytest
from msgspec import Meta, Struct
from pydantic import BaseModel, Field

from headrace.errors import TopologyError
from headrace.serdes import JsonSerde, Serde
from tests.unit.serdes.naming import named


class Kind(Enum):
    GENERAL = "general"


@dataclass
class Item:
    name: str
    amount: float = 0.0


@dataclass
class Order:
    id: int
    items: list[Item] = field(default_factory=list)
    kind: Kind = Kind.GENERAL


class Store(Struct, rename="camel"):
    location_id: str
    opened: datetime | None = None


class Address(TypedDict):
    street: str


class Point(NamedTuple):
    x: int
    y: int


class Customer(BaseModel):
    customer_id: int = Field(alias="customerId")
    email: str = ""


@dataclass
class Visit:
    customer: Customer
    others: list[Customer]
    note: object = None


class Plain:
    pass


@dataclass
class Holder:
    plain: Plain


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (JsonSerde(), {"b": [1, None], "a": True}, b'{"a":true,"b":[1,null]}'),
        (JsonSerde(), "é", '"é"'.encode()),
        (JsonSerde(dict), {"z": 1, "a": {"y": 1, "b": 2}}, b'{"a":{"b":2,"y":1},"z":1}'),
        (JsonSerde(list), [3, "a"], b'[3,"a"]'),
        (
            JsonSerde(Order),
            Order(1, [Item("tea", 2.5)]),
            b'{"id":1,"items":[{"name":"tea","amount":2.5}],"kind":"general"}',
        ),
        (
            JsonSerde(Store),
            Store("s1", datetime(2022, 12, 5, 8, tzinfo=UTC)),
            b'{"locationId":"s1","opened":"2022-12-05T08:00:00Z"}',
        ),
        (JsonSerde(Address), Address(street="Main"), b'{"street":"Main"}'),
        (JsonSerde(Point), Point(1, 2), b"[1,2]"),
        (JsonSerde(Customer), Customer(customerId=5), b'{"customerId":5,"email":""}'),
        (JsonSerde(list[Item]), [Item("tea")], b'[{"name":"tea","amount":0.0}]'),
        (JsonSerde(dict[str, Item]), {"t": Item("a")}, b'{"t":{"name":"a","amount":0.0}}'),
        (JsonSerde(dict[int, str]), {2: "b", 1: "a"}, b'{"1":"a","2":"b"}'),
        (JsonSerde(set[int]), {3, 1, 2}, b"[1,2,3]"),
        (JsonSerde(tuple[int, str]), (1, "a"), b'[1,"a"]'),
        (JsonSerde(int | str), "a", b'"a"'),
        (JsonSerde(Item | None), Item("tea"), b'{"name":"tea","amount":0.0}'),
        (JsonSerde(Decimal), Decimal("1.10"), b"1.10"),
        (JsonSerde(Kind), Kind.GENERAL, b'"general"'),
        (JsonSerde(float), 3, b"3"),
        (JsonSerde(Annotated[list[int], Meta(min_length=1)]), [1], b"[1]"),
        (JsonSerde(dict[str, object]), {"a": [1, {"b": 2}]}, b'{"a":[1,{"b":2}]}'),
        (
            JsonSerde(Visit),
            Visit(Customer(customerId=1), [Customer(customerId=2)], "hi"),
            b'{"customer":{"customerId":1,"email":""},'
            b'"others":[{"customerId":2,"email":""}],"note":"hi"}',
        ),
    ],
    ids=repr,
)
def test_values_become_compact_json_and_come_back(
    serde: Serde[Any], value: object, data: bytes
) -> None:
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value


def test_equal_values_have_equal_bytes() -> None:
    serde = JsonSerde()

    assert serde.serialize({"a": 1, "b": {2, 1}}) == serde.serialize({"b": {1, 2}, "a": 1})


def test_keys_that_are_not_text_are_sorted_too_wherever_they_are() -> None:
    assert JsonSerde().serialize({"a": [{2: 1, 1: 2}]}) == b'{"a":[{"1":2,"2":1}]}'


def test_json_has_no_nan() -> None:
    assert JsonSerde().serialize([math.nan, math.inf]) == b"[null,null]"


def test_large_whole_numbers_keep_all_digits() -> None:
    serde = JsonSerde(int)

    assert serde.deserialize(serde.serialize(10**40)) == 10**40


def test_fields_that_the_type_does_not_have_are_ignored() -> None:
    assert JsonSerde(Item).deserialize(b'{"name":"tea","colour":"green"}') == Item("tea")


@pytest.mark.parametrize(
    ("serde", "data", "words"),
    [
        (JsonSerde(Order), b'{"id":"x"}', "fit Order: Expected `int`, got `str` - at `[$].id`"),
        (JsonSerde(Order), b"{}", "fit Order: Object missing required field `id`"),
        (
            JsonSerde(Order),
            b'{"id":1,"items":[{"name":"tea","amount":"much"}]}',
            "Expected `float`, got `str` - at `[$].items\\[0\\].amount`",
        ),
        (JsonSerde(list[Order]), b'{"id":1}', "does not fit list\\[Order\\]: Expected `array`"),
        (JsonSerde(dict), b"[1]", "does not fit dict: Expected `object`, got `array`"),
        (
            JsonSerde(Customer),
            b'{"customerId":"x"}',
            "does not fit Customer: Input should be a valid integer.* - at `customerId`",
        ),
        (JsonSerde(Customer), b"{", "does not fit Customer: Invalid JSON"),
        (
            JsonSerde(list[Customer]),
            b'[{"customerId":"x"}]',
            "Input should be a valid integer.* - at `customerId` - at `[$]\\[0\\]`",
        ),
        (JsonSerde(), b"{", "The data is not JSON: Input data was truncated. Read it with"),
        (JsonSerde(), b"", "The data is not JSON"),
        (JsonSerde(), b"abc", "The data is not JSON"),
        (JsonSerde(), b'"\xff"', "The data is not JSON: 'utf-8' codec can't decode"),
    ],
    ids=repr,
)
def test_data_that_does_not_fit_is_refused_with_the_field_and_the_types(
    serde: Serde[Any], data: bytes, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        serde.deserialize(data)


def test_the_data_of_a_record_is_not_part_of_a_models_error() -> None:
    with pytest.raises(ValueError, match="Input should be a valid integer") as caught:
        JsonSerde(Customer).deserialize(b'{"customerId":"s3cret"}')

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("serde", "value", "words"),
    [
        (JsonSerde(Order), {"id": 1}, "JsonSerde writes Order, but got dict"),
        (JsonSerde(list[Item]), Item("tea"), "JsonSerde writes list\\[Item\\], but got Item"),
        (JsonSerde(Address), 5, "JsonSerde writes Address, but got int"),
        (JsonSerde(Annotated[list[int], Meta(min_length=1)]), {}, "but got dict"),
        (JsonSerde(int | str), 5.0, "JsonSerde writes int | str, but got float"),
        (JsonSerde(Customer), Item("tea"), "JsonSerde writes Customer, but got Item"),
        (JsonSerde(), Plain(), "The Plain cannot be written as JSON: objects of type Plain are"),
        (JsonSerde(), {"a": Plain()}, "The dict cannot be written as JSON: objects of type Plain"),
        (JsonSerde(), {(1, 2): 3}, "The dict cannot be written as JSON"),
    ],
    ids=named,
)
def test_a_value_of_the_wrong_type_is_refused(serde: Serde[Any], value: object, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        serde.serialize(value)


def test_text_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"The str cannot be written as JSON: .*surrogates"):
        JsonSerde().serialize("\ud800")


@pytest.mark.parametrize(
    ("type_", "words"),
    [
        (Plain, "Plain cannot be JSON. Make it a dataclass, a Struct"),
        (Holder, "Plain within Holder cannot be JSON"),
        (list[Plain], "Plain within list\\[Plain\\] cannot be JSON"),
        (Item | Order, "Item | Order cannot be read from JSON: Type unions may not contain"),
        (complex, "complex cannot be JSON"),
    ],
)
def test_a_type_that_cannot_be_json_is_refused_at_once(type_: object, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        JsonSerde(type_)


def test_a_type_whose_annotations_cannot_be_read_is_refused_at_once() -> None:
    class Inner:
        pass

    @dataclass
    class Outer:
        inner: Inner

    with pytest.raises(TopologyError, match="Outer cannot be read from JSON: name 'Inner' is not"):
        JsonSerde(Outer)


def test_serdes_of_one_type_are_equal() -> None:
    assert JsonSerde(Order) == JsonSerde(Order)
    assert hash(JsonSerde(list[Order])) == hash(JsonSerde(list[Order]))
    assert JsonSerde(Order) != JsonSerde(Item)
    assert JsonSerde(Order) != JsonSerde(Order, rename="camel")
    assert JsonSerde(Order) != Order
    assert JsonSerde(Any) == JsonSerde()


def test_the_repr_of_a_serde_names_it() -> None:
    assert repr(JsonSerde()) == "JsonSerde()"
    assert repr(JsonSerde(list[Order], rename="camel")) == "JsonSerde(list[Order], rename='camel')"
    assert repr(JsonSerde(dict[str, UUID])) == "JsonSerde(dict[str, UUID])"


@pytest.mark.parametrize("serde", [JsonSerde(), JsonSerde(Order), JsonSerde(Order, rename="camel")])
def test_a_serde_survives_being_shipped(serde: JsonSerde[Any]) -> None:
    shipped = copy.deepcopy(serde)

    assert shipped is not serde
    assert shipped == serde
    assert shipped.serialize(Order(1)) == serde.serialize(Order(1))


class Suit(Enum):
    HEARTS = "hearts"


class Cat(Struct, tag="cat"):
    name: str


class Dog(Struct, tag="dog"):
    name: str


class Sphere(BaseModel):
    kind: Literal["sphere"]


class Cube(BaseModel):
    kind: Literal["cube"]


class Solid(BaseModel):
    shape: Annotated[Sphere | Cube, Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("serde", "data", "message"),
    [
        (JsonSerde(Suit), b'"my secret"', "Invalid enum value ****"),
        (JsonSerde(Literal["a", "b"]), b'"my secret"', "Invalid enum value ****"),
        (JsonSerde(Literal[1, 2]), b"4111111", "Invalid enum value ****"),
        (JsonSerde(Cat | Dog), b'{"type":"my secret"}', "Invalid value **** - at `$.type`"),
        (JsonSerde(list[Suit]), b'["it\'s my secret"]', "Invalid enum value **** - at `$[0]`"),
        (JsonSerde(Solid), b'{"shape":{"kind":"my secret"}}', "Input tag ****"),
    ],
)
def test_an_error_does_not_quote_the_value(
    serde: JsonSerde[Any], data: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=r"does not fit") as caught:
        serde.deserialize(data)

    assert message in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "4111111" not in str(caught.value)


@dataclass
class Price:
    amount: Decimal
    tax: dict[str, Decimal | None]
    note: str = ""


@pytest.mark.parametrize(
    "digits", ["27.00", "0.1", "1.2345678901234567890123456789", "1E+30", "-0.00", "12"]
)
@pytest.mark.parametrize("rename", [None, "camel"])
def test_a_decimal_is_a_number_with_all_its_digits(digits: str, rename: Any) -> None:
    serde = JsonSerde(Price, rename=rename)
    price = Price(Decimal(digits), {"vat": Decimal(digits)})

    data = serde.serialize(price)

    assert data.count(f":{digits}".encode()) == 2
    assert json.loads(data)["amount"] == float(digits)
    read = serde.deserialize(data)
    assert (str(read.amount), str(read.tax["vat"])) == (digits, digits)


def test_a_decimal_that_was_written_as_text_is_still_read() -> None:
    assert JsonSerde(Decimal).deserialize(b'"1.10"') == Decimal("1.10")


def test_a_decimal_that_is_no_number_is_null_and_text_stays() -> None:
    serde = JsonSerde(Price)

    data = serde.serialize(Price(Decimal("NaN"), {"vat": Decimal("-Infinity")}, "NaN"))
    text = serde.serialize(Price(Decimal(1), {}, "Infinity"))

    assert json.loads(data) == {"amount": None, "tax": {"vat": None}, "note": "NaN"}
    assert json.loads(text) == {"amount": 1, "tax": {}, "note": "Infinity"}
    assert JsonSerde().serialize([(Decimal("NaN"),)]) == b"[[null]]"
