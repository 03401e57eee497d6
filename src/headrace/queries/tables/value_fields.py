"""The fields of typed values: the columns that SQL and Arrow show besides key and value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as shapes

from headrace.serdes.avro_serde import AvroSerde
from headrace.serdes.base import Serde
from headrace.serdes.json_serde import JsonSerde
from headrace.serdes.protobuf_serde import ProtobufSerde

_CPP_TYPES: dict[int, type[shapes.Type]] = {
    1: shapes.IntType,
    2: shapes.IntType,
    3: shapes.IntType,
    4: shapes.IntType,
    5: shapes.FloatType,
    6: shapes.FloatType,
    7: shapes.BoolType,
    8: shapes.StrType,  # JSON has the names of enums
    9: shapes.StrType,
}
"""The types of Protobuf's fields by their C++ types; messages have none."""


class ValueField(NamedTuple):
    """One field of the values of a store."""

    name: str
    """The name that the field has in JSON."""
    shape: shapes.Type
    """The type of the field; `AnyType` if nothing says so."""


def value_fields(serde: Serde[Any]) -> tuple[ValueField, ...]:
    """Return the fields of the values of a serde, in their order.

    Structs, dataclasses, TypedDicts, pydantic models, Avro records and Protobuf messages have
    fields; other values have none.
    """
    match serde:
        case JsonSerde():
            return _fields_of_type(serde.type, is_camel_case=serde.rename == "camel")
        case AvroSerde(type=None):
            return tuple(_fields_of_avro(json.loads(serde.schema)))
        case AvroSerde():
            return _fields_of_type(serde.type)
        case ProtobufSerde():
            return tuple(_fields_of_message(serde.cls.DESCRIPTOR))
        case _:
            return ()


def shape_of(type_: Any) -> shapes.Type:
    """Return the shape of a type without its `None` and its constraints; else `AnyType`."""
    try:
        return plain_shape(shapes.type_info(type_))
    except (TypeError, NameError, ValueError):
        return shapes.AnyType()


def plain_shape(shape: shapes.Type) -> shapes.Type:
    """Return a shape without `None`, which every column may hold, and without metadata."""
    if isinstance(shape, shapes.Metadata):
        return plain_shape(shape.type)
    if isinstance(shape, shapes.UnionType):
        rest = [part for part in shape.types if not isinstance(part, shapes.NoneType)]
        return plain_shape(rest[0]) if len(rest) == 1 else shape
    return shape


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name, with underscores behind it until no other name is equal in lower case."""
    lower = {each.lower() for each in taken}
    while name.lower() in lower:
        name += "_"
    return name


def _fields_of_type(type_: Any, *, is_camel_case: bool = False) -> tuple[ValueField, ...]:
    if hasattr(type_, "model_fields"):
        return tuple(_fields_of_model(type_))
    return fields_of_shape(shape_of(type_), is_camel_case=is_camel_case)


def fields_of_shape(shape: shapes.Type, *, is_camel_case: bool) -> tuple[ValueField, ...]:
    """Return the fields that a shape has in JSON, in their order; none if it is no object."""
    if not isinstance(shape, shapes.StructType | shapes.DataclassType | shapes.TypedDictType):
        return ()
    if getattr(shape, "array_like", False):
        return ()
    fields = shape.fields
    if isinstance(shape, shapes.TypedDictType):  # whose fields msgspec sorts by name
        order = [*shape.cls.__annotations__]
        fields = tuple(sorted(fields, key=lambda part: order.index(part.name)))
    names = [part.encode_name for part in fields]
    if is_camel_case and not isinstance(shape, shapes.StructType):
        names = [*msgspec.defstruct("Fields", names, rename="camel").__struct_encode_fields__]
    pairs = zip(names, fields, strict=True)
    return tuple(ValueField(name, plain_shape(part.type)) for name, part in pairs)


def _fields_of_model(model: Any) -> Iterator[ValueField]:
    for name, field in model.model_fields.items():
        alias = field.serialization_alias or field.alias or name
        yield ValueField(alias, shape_of(field.annotation))


def _fields_of_avro(schema: Any) -> Iterator[ValueField]:
    if isinstance(schema, dict) and schema.get("type") == "record":
        for part in schema["fields"]:
            yield ValueField(part["name"], _avro_shape(part["type"]))


def _avro_shape(schema: Any) -> shapes.Type:
    if isinstance(schema, list):
        rest = [part for part in schema if part != "null"]
        return _avro_shape(rest[0]) if len(rest) == 1 else shapes.AnyType()
    known: dict[str, shapes.Type] = {
        "int": shapes.IntType(),
        "long": shapes.IntType(),
        "float": shapes.FloatType(),
        "double": shapes.FloatType(),
        "boolean": shapes.BoolType(),
        "string": shapes.StrType(),
    }
    return known.get(schema, shapes.AnyType()) if isinstance(schema, str) else shapes.AnyType()


def _fields_of_message(descriptor: Any) -> Iterator[ValueField]:
    for field in descriptor.fields:
        known = shapes.AnyType if field.is_repeated else _CPP_TYPES.get(field.cpp_type)
        yield ValueField(field.name, (known or shapes.AnyType)())
