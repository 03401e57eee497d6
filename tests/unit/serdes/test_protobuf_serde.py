"""Protobuf messages, alone and in Confluent's format."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.struct_pb2 import Struct

from headrace.errors import TopologyError
from headrace.serdes import ConfluentSchemaRegistry, ProtobufSerde
from headrace.serdes.protobuf_serde import is_message_class
from tests.unit.serdes.fake_registry import MemoryRegistry, fake_registry


def _message(name: str, *fields: str, **nested: Any) -> descriptor_pb2.DescriptorProto:
    """Return the description of a message with text fields, and with messages inside it."""
    field = descriptor_pb2.FieldDescriptorProto
    return descriptor_pb2.DescriptorProto(
        name=name,
        field=[
            field(name=text, number=number, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
            for number, text in enumerate(fields, 1)
        ],
        **nested,
    )


def _classes() -> dict[str, Any]:
    """Return what ``protoc`` would make of three files that import each other."""
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(
        descriptor_pb2.FileDescriptorProto(
            name="shop/item.proto",
            package="shop",
            message_type=[_message("Item", "name")],
            dependency=["google/protobuf/timestamp.proto"],
        )
    )
    pool.Add(
        descriptor_pb2.FileDescriptorProto(
            name="shop/order.proto",
            package="shop",
            message_type=[
                _message("Order", "id"),
                _message("Cart", "owner", nested_type=[_message("A"), _message("Line", "text")]),
            ],
            dependency=["shop/item.proto"],
        )
    )
    required = descriptor_pb2.FieldDescriptorProto(
        name="id",
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_REQUIRED,
    )
    pool.Add(
        descriptor_pb2.FileDescriptorProto(
            name="old.proto",
            syntax="proto2",
            message_type=[descriptor_pb2.DescriptorProto(name="Old", field=[required])],
        )
    )
    names = ("shop.Item", "shop.Order", "shop.Cart", "shop.Cart.Line", "Old")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names
    }


CLASSES = _classes()
Order = CLASSES["shop.Order"]
Line = CLASSES["shop.Cart.Line"]
Old = CLASSES["Old"]


def test_a_message_becomes_its_own_bytes_and_comes_back() -> None:
    serde = ProtobufSerde(Order)

    data = serde.serialize(Order(id="a"))

    assert data == Order(id="a").SerializeToString()
    assert serde.deserialize(data) == Order(id="a")


def test_equal_messages_have_equal_bytes() -> None:
    serde = ProtobufSerde(Struct)
    names = [f"name-{number}" for number in range(20)]
    message, other = Struct(), Struct()
    for name in names:
        message.fields[name].number_value = 1
    for name in reversed(names):
        other.fields[name].number_value = 1

    assert serde.serialize(message) == serde.serialize(other)


def test_another_message_is_refused() -> None:
    with pytest.raises(TypeError, match="ProtobufSerde writes Order, but got Line"):
        ProtobufSerde(Order).serialize(Line(text="a"))


def test_a_message_that_is_not_complete_is_refused() -> None:
    with pytest.raises(ValueError, match=r"The Old cannot be written: .*missing required fields"):
        ProtobufSerde(Old).serialize(Old())


def test_data_that_is_no_message_is_refused() -> None:
    with pytest.raises(ValueError, match="The data is not a Order"):
        ProtobufSerde(Order).deserialize(b"\xff\xff")


@pytest.mark.parametrize("given", [dict, str, Order(), "Order"])
def test_a_class_that_is_no_message_is_refused_at_once(given: Any) -> None:
    assert not is_message_class(given)
    with pytest.raises(TopologyError, match="ProtobufSerde needs a class that `protoc` made"):
        ProtobufSerde(given)


@pytest.mark.parametrize(
    ("name", "indexes"),
    [("shop.Order", b"\x00"), ("shop.Cart", b"\x02\x02"), ("shop.Cart.Line", b"\x04\x02\x02")],
)
def test_with_a_registry_the_schema_and_the_place_of_the_message_stand_first(
    name: str, indexes: bytes
) -> None:
    serde: ProtobufSerde[Any] = ProtobufSerde(CLASSES[name], MemoryRegistry())
    serde = serde.for_topic("orders", is_key=False)
    message = CLASSES[name]()

    data = serde.serialize(message)

    assert data == b"\x00\x00\x00\x00\x01" + indexes
    assert serde.deserialize(data) == message


def test_the_file_of_the_message_is_registered_with_what_it_imports() -> None:
    registry = MemoryRegistry()
    ProtobufSerde(Order, registry).for_topic("orders", is_key=True).serialize(Order())

    ((subject, schema),) = registry.registered
    (reference,) = schema.references
    assert subject == "orders-key"
    assert schema.schema_type == "PROTOBUF"
    assert base64.b64decode(schema.text) == Order.DESCRIPTOR.file.serialized_pb
    assert (reference.name, reference.subject) == ("shop/item.proto", "shop/item.proto")
    assert reference.schema.references == (), "every registry knows google/protobuf"


def test_a_message_far_down_in_a_file_can_be_read() -> None:
    serde: ProtobufSerde[Any] = ProtobufSerde(Order, MemoryRegistry())

    assert serde.deserialize(b"\x00\x00\x00\x00\x01\x02\x80\x02\x0a\x01a") == Order(id="a")


@pytest.mark.parametrize(("place", "data"), [(63, b"\x7e"), (64, b"\x80\x01"), (99, b"\xc6\x01")])
def test_a_message_far_down_in_a_file_can_be_written(place: int, data: bytes) -> None:
    pool = DescriptorPool()
    messages = [_message(f"M{number}") for number in range(100)]
    pool.Add(descriptor_pb2.FileDescriptorProto(name="many.proto", message_type=messages))
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"M{place}"))
    serde = ProtobufSerde(message, MemoryRegistry()).for_topic("many", is_key=True)

    assert serde.serialize(message())[5:] == b"\x02" + data


@pytest.mark.parametrize("rest", [b"", b"\x80", b"\x04\x02", b"\x80\x80\x80\x80\x80\x80\x00"])
def test_data_that_ends_too_early_is_refused(rest: bytes) -> None:
    with pytest.raises(ValueError, match="The data ends within the indexes of its message"):
        ProtobufSerde(Order, MemoryRegistry()).deserialize(b"\x00\x00\x00\x00\x01" + rest)


def test_with_a_registry_data_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="does not start with a zero and the number"):
        ProtobufSerde(Order, MemoryRegistry()).deserialize(b"\x0a\x01a")


def test_with_a_registry_a_topic_is_needed_to_write() -> None:
    with pytest.raises(ValueError, match="writes for a topic, and this one has none"):
        ProtobufSerde(Order, MemoryRegistry()).serialize(Order())


def test_without_a_registry_the_topic_does_not_matter() -> None:
    serde = ProtobufSerde(Order)

    assert serde.for_topic("orders", is_key=False) is serde


def test_it_works_with_a_registry_over_http() -> None:
    with fake_registry() as server:
        serde = ProtobufSerde(Order, server.url).for_topic("orders", is_key=False)

        assert serde.deserialize(serde.serialize(Order(id="a"))) == Order(id="a")
        assert list(server.subjects) == ["shop/item.proto", "orders-value"]
        assert isinstance(serde.registry, ConfluentSchemaRegistry)
        serde.registry.client.close()


def test_serdes_of_one_class_registry_and_subject_are_equal() -> None:
    serde = ProtobufSerde(Order, "http://a")

    assert serde == ProtobufSerde(Order, "http://a")
    assert hash(serde) == hash(ProtobufSerde(Order, "http://a"))
    assert serde != ProtobufSerde(Line, "http://a")
    assert serde != serde.for_topic("orders", is_key=True)
    assert serde != Order
    assert repr(serde) == "ProtobufSerde(Order)"


def test_a_serde_survives_being_shipped() -> None:
    serde = ProtobufSerde(Order, "http://a").for_topic("orders", is_key=True)

    assert copy.deepcopy(serde) == serde
