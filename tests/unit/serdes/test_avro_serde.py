"""Avro, alone and in Confluent's format."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import pytest
from msgspec import Struct

from headrace.errors import TopologyError
from headrace.serdes import AvroSerde, ConfluentSchemaRegistry, Schema, SchemaReference
from tests.unit.serdes.fake_registry import MemoryRegistry, fake_registry

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
NEWER_ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "double"},
        {"name": "kind", "type": "string", "default": "general"},
    ],
}
UNLIKE_ORDER = ORDER | {"fields": [{"name": "weight", "type": "double"}]}
RICH = {
    "type": "record",
    "name": "Rich",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["GENERAL"]}},
        {"name": "order", "type": ORDER},
        {"name": "others", "type": {"type": "array", "items": "shop.Order"}},
        {"name": "byName", "type": {"type": "map", "values": "int"}},
    ],
}


@dataclass
class Order:
    id: int
    note: str | None = None


class OrderStruct(Struct):
    id: int
    note: str | None = None


class OrderDict(TypedDict):
    id: int
    note: str | None


class Kind(Enum):
    GENERAL = "GENERAL"


class Rich(Struct, rename="camel"):
    at: datetime
    day: date
    uid: UUID
    price: Decimal
    raw: bytes
    kind: Kind
    order: Order
    others: list[OrderStruct]
    by_name: dict[str, int]


RICH_VALUE = Rich(
    datetime(2022, 12, 5, 8, tzinfo=UTC),
    date(2022, 12, 5),
    UUID(int=5),
    Decimal("1.50"),
    b"\x00\xff",
    Kind.GENERAL,
    Order(1, "hi"),
    [OrderStruct(2)],
    {"a": 5},
)


@pytest.mark.parametrize("schema", [ORDER, json.dumps(ORDER)])
def test_a_dict_becomes_avro_and_comes_back(schema: Any) -> None:
    serde = AvroSerde(schema)

    data = serde.serialize({"id": 5, "note": "hi"})

    assert data == b"\x0a\x02\x04hi"
    assert serde.deserialize(data) == {"id": 5, "note": "hi"}


@pytest.mark.parametrize("schema", ["string", '"string"', {"type": "string"}])
def test_a_schema_may_be_a_primitive_type(schema: Any) -> None:
    serde = AvroSerde(schema)

    assert serde.deserialize(serde.serialize("hi")) == "hi"


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Order, Order(5, "hi")),
        (OrderStruct, OrderStruct(5)),
        (OrderDict, OrderDict(id=5, note=None)),
    ],
)
def test_a_type_can_be_written_and_read(type_: type[Any], value: object) -> None:
    serde = AvroSerde(ORDER, type_)

    data = serde.serialize(value)

    assert data.startswith(b"\x0a")
    assert serde.deserialize(data) == value


def test_logical_types_nested_types_and_renamed_fields_come_back() -> None:
    serde = AvroSerde(RICH, Rich)

    assert serde.deserialize(serde.serialize(RICH_VALUE)) == RICH_VALUE


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"id": "x"}, "The dict does not fit the Avro schema 'shop.Order': an integer is required"),
        ({"id": 1.5}, "'shop.Order': `id` must be int, but is float"),
        ({"id": True}, "`id` must be int, but is bool"),
        ({"id": 2**63}, "`id` is 9223372036854775808, which does not fit in 64 bits"),
        ({"id": 1, "note": 5}, "do not match"),
        ({}, "no value and no default for id"),
        (5, "The int does not fit the Avro schema 'shop.Order'"),
    ],
)
def test_a_value_that_does_not_fit_the_schema_is_refused(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AvroSerde(ORDER).serialize(value)


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="AvroSerde writes Order, but got dict"):
        AvroSerde(ORDER, Order).serialize({"id": 5})  # type: ignore[arg-type]  # what the test is about


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "does not fit the Avro schema 'shop.Order': EOFError"),
        (b"\x0a\x0a", "does not fit the Avro schema 'shop.Order': list index out of range"),
        (b"\x0a\x00\x00\x00", "2 bytes longer than the Avro schema 'shop.Order' says"),
    ],
)
def test_data_that_does_not_fit_the_schema_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AvroSerde(ORDER).deserialize(data)


def test_data_that_does_not_fit_the_type_is_refused() -> None:
    class Strict(Struct):
        id: int
        note: str

    with pytest.raises(ValueError, match="The Avro data does not fit Strict: Expected `str`, got"):
        AvroSerde(ORDER, Strict).deserialize(b"\x0a\x00")


@pytest.mark.parametrize(
    "schema", ["nonsense", {"type": "record"}, {"type": "array", "items": "Unknown"}, "{"]
)
def test_an_object_that_is_no_schema_is_refused_at_once(schema: Any) -> None:
    with pytest.raises(TopologyError, match="The Avro schema cannot be used"):
        AvroSerde(schema)


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)

    with pytest.raises(ModuleNotFoundError, match='pip install "headrace\\[avro\\]"'):
        AvroSerde(ORDER)


def test_with_a_registry_the_number_of_the_schema_stands_first() -> None:
    registry = MemoryRegistry()
    serde = AvroSerde(ORDER, Order, registry).for_topic("orders", is_key=False)

    data = serde.serialize(Order(5))

    assert data == b"\x00\x00\x00\x00\x01\x0a\x00"
    assert serde.deserialize(data) == Order(5)
    assert registry.registered == [("orders-value", Schema(json.dumps(ORDER), "AVRO"))]


def test_keys_and_values_have_subjects_of_their_own() -> None:
    registry = MemoryRegistry()
    serde = AvroSerde("string", registry=registry)

    for is_key in (True, False):
        serde.for_topic("orders", is_key=is_key).serialize("a")

    assert [subject for subject, _ in registry.registered] == ["orders-key", "orders-value"]


def test_a_schema_is_registered_once() -> None:
    class Counting(MemoryRegistry):
        calls = 0

        def register(self, subject: str, schema: Schema, /) -> int:
            self.calls += 1
            return super().register(subject, schema)

    registry = Counting()
    serde = AvroSerde("string", registry=registry).for_topic("orders", is_key=True)
    for _ in range(3):
        serde.serialize("a")

    assert registry.calls == 1


def test_a_value_of_another_schema_is_read_by_avros_rules() -> None:
    registry = MemoryRegistry()
    old = AvroSerde(ORDER, registry=registry).for_topic("orders", is_key=False)
    new = AvroSerde(NEWER_ORDER, registry=registry).for_topic("orders", is_key=False)

    data = old.serialize({"id": 5, "note": "hi"})

    for _ in range(2):
        assert new.deserialize(data) == {"id": 5.0, "kind": "general"}
    with pytest.raises(ValueError, match=r"does not fit the Avro schema 'shop.Order'"):
        AvroSerde(UNLIKE_ORDER, registry=registry).deserialize(data)


def test_a_schema_of_the_registry_may_import_others() -> None:
    registry = MemoryRegistry()
    item = Schema('{"type":"enum","name":"Item","symbols":["TEA"]}', "AVRO")
    line = Schema(
        '{"type":"record","name":"Line","fields":[{"name":"item","type":"Item"}]}',
        "AVRO",
        (SchemaReference("Item", "item", item),),
    )
    cart = Schema(
        '{"type":"record","name":"Cart","fields":[{"name":"line","type":"Line"},'
        '{"name":"item","type":"Item"}]}',
        "AVRO",
        (SchemaReference("Line", "line", line), SchemaReference("Item", "item", item)),
    )
    registry.register("carts-value", cart)
    reader = AvroSerde(
        {
            "type": "record",
            "name": "Cart",
            "fields": [
                {"name": "item", "type": {"type": "enum", "name": "Item", "symbols": ["TEA"]}}
            ],
        },
        registry=registry,
    )

    assert reader.deserialize(b"\x00\x00\x00\x00\x01\x00\x00") == {"item": "TEA"}


def test_with_a_registry_data_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="does not start with a zero and the number"):
        AvroSerde(ORDER, registry=MemoryRegistry()).deserialize(b"\x0a\x00")


def test_with_a_registry_a_topic_is_needed_to_write() -> None:
    with pytest.raises(ValueError, match="writes for a topic, and this one has none"):
        AvroSerde(ORDER, registry=MemoryRegistry()).serialize({"id": 5})


def test_without_a_registry_the_topic_does_not_matter() -> None:
    serde = AvroSerde(ORDER)

    assert serde.for_topic("orders", is_key=False) is serde


def test_it_works_with_a_registry_over_http() -> None:
    with fake_registry() as server:
        serde = AvroSerde(ORDER, registry=server.url).for_topic("orders", is_key=False)

        assert serde.deserialize(serde.serialize({"id": 5})) == {"id": 5, "note": None}
        assert isinstance(serde.registry, ConfluentSchemaRegistry)
        serde.registry.client.close()


def test_serdes_with_the_same_schema_type_registry_and_subject_are_equal() -> None:
    registry = MemoryRegistry()
    serde = AvroSerde(ORDER, Order, registry)

    assert serde == AvroSerde(ORDER, Order, registry)
    assert hash(serde) == hash(AvroSerde(ORDER, Order, registry))
    assert serde != AvroSerde(ORDER, Order)
    assert serde != serde.for_topic("orders", is_key=True)
    assert serde != ORDER


def test_the_repr_of_a_serde_names_it() -> None:
    assert repr(AvroSerde(ORDER, Order)) == "AvroSerde('shop.Order', Order)"
    assert repr(AvroSerde("string")) == "AvroSerde('string')"
    assert repr(AvroSerde({"type": "bytes"})) == """AvroSerde('{"type": "bytes"}')"""


def test_a_serde_survives_being_shipped() -> None:
    serde = AvroSerde(ORDER, Order, "http://localhost:8081").for_topic("orders", is_key=True)

    shipped = copy.deepcopy(serde)

    assert shipped is not serde
    assert shipped == serde
    assert shipped.subject == "orders-key"


class Colour(Enum):
    RED = "red"


class Painted(Struct):
    colour: Colour


def test_an_error_does_not_quote_the_value() -> None:
    fields = [{"name": "colour", "type": "string"}]
    schema = {"type": "record", "name": "Painted", "fields": fields}
    data = AvroSerde(schema).serialize({"colour": "my secret"})

    with pytest.raises(ValueError, match=r"does not fit Painted: Invalid enum value \*\*\*\*"):
        AvroSerde(schema, Painted).deserialize(data)
