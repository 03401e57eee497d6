"""The Arrow types of keys and values, and how their JSON is decoded for a column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import inspect as shapes

from headrace.queries.json_values import json_writer
from headrace.queries.tables.value_fields import fields_of_shape, plain_shape, shape_of
from headrace.serdes.base import Serde
from headrace.serdes.json_serde import JsonSerde
from headrace.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UuidSerde,
)

_SERDES: dict[type[Serde[Any]], pa.DataType] = {
    StringSerde: pa.string(),
    UuidSerde: pa.string(),
    BytesSerde: pa.binary(),
    BooleanSerde: pa.bool_(),
    ShortSerde: pa.int16(),
    IntegerSerde: pa.int32(),
    LongSerde: pa.int64(),
    FloatSerde: pa.float32(),
    DoubleSerde: pa.float64(),
}
_SCALARS: dict[type[shapes.Type], tuple[Any, pa.DataType]] = {
    shapes.IntType: (int, pa.int64()),
    shapes.FloatType: (float, pa.float64()),
    shapes.BoolType: (bool, pa.bool_()),
    shapes.StrType: (str, pa.string()),
    shapes.UUIDType: (str, pa.string()),
    shapes.BytesType: (bytes, pa.binary()),
    shapes.DecimalType: (Decimal, pa.decimal128(38, 18)),
    shapes.DateTimeType: (dt.datetime, pa.timestamp("us", tz="UTC")),
    shapes.DateType: (dt.date, pa.date32()),
    shapes.TimeType: (dt.time, pa.time64("us")),
}
_KEPT_TYPES = (bytes, Decimal, dt.datetime, dt.date, dt.time)


class ColumnType(NamedTuple):
    """The type of a column, and the Python type that JSON is decoded to for it."""

    python_type: Any
    arrow_type: pa.DataType
    is_nested: bool = False
    """Whether the column holds lists or structs."""

    @property
    def is_json_text(self) -> bool:
        """Return whether the column holds the JSON itself, because Arrow has no type for it."""
        return self.python_type is msgspec.Raw

    def to_arrow(self, values: Iterable[Any]) -> pa.Array:
        """Return a column of decoded values."""
        if self.is_json_text:
            texts = (None if value is None else bytes(value).decode() for value in values)
            return pa.array([None if each == "null" else each for each in texts], self.arrow_type)
        plain = [*values]
        if self.is_nested:
            plain = msgspec.to_builtins(plain, builtin_types=_KEPT_TYPES)
        return pa.array(plain, self.arrow_type)


JSON_TEXT = ColumnType(msgspec.Raw, pa.string())


def column_type(
    shape: shapes.Type, *, is_camel_case: bool = False, within: tuple[type, ...] = ()
) -> ColumnType:
    """Return the column for a shape.

    Args:
        shape: The shape.
        is_camel_case: Whether the fields of dataclasses and TypedDicts are in camelCase.
        within: The classes around it; one that contains itself is JSON text.
    """
    shape = plain_shape(shape)
    if type(shape) in _SCALARS:
        return ColumnType(*_SCALARS[type(shape)])
    if isinstance(shape, shapes.EnumType | shapes.LiteralType):
        return _choice(shape)
    if isinstance(shape, shapes.CollectionType):
        inner = column_type(shape.item_type, is_camel_case=is_camel_case, within=within)
        if inner.is_json_text:
            return JSON_TEXT
        item: Any = inner.python_type
        return ColumnType(list[item | None], pa.list_(inner.arrow_type), is_nested=True)
    return _object(shape, is_camel_case=is_camel_case, within=within)


def _choice(shape: shapes.EnumType | shapes.LiteralType) -> ColumnType:
    if isinstance(shape, shapes.LiteralType):
        values = [*shape.values]
    else:
        values = [each.value for each in shape.cls]
    for type_, arrow_type in ((str, pa.string()), (int, pa.int64())):
        if all(type(each) is type_ for each in values):
            return ColumnType(type_, arrow_type)
    return JSON_TEXT


def _object(shape: shapes.Type, *, is_camel_case: bool, within: tuple[type, ...]) -> ColumnType:
    fields = fields_of_shape(shape, is_camel_case=is_camel_case)
    class_ = getattr(shape, "cls", None)
    if not fields or class_ is None or class_ in within:
        return JSON_TEXT
    columns = [
        column_type(each.shape, is_camel_case=is_camel_case, within=(*within, class_))
        for each in fields
    ]
    if any(each.is_json_text for each in columns):
        return JSON_TEXT
    names = [each.name for each in fields]
    arrow_types = [each.arrow_type for each in columns]
    return ColumnType(
        decoded_type(names, columns),
        pa.struct([*zip(names, arrow_types, strict=True)]),
        is_nested=True,
    )


def decoded_type(names: Sequence[str], columns: Sequence[ColumnType]) -> type[msgspec.Struct]:
    """Return a Struct with the attributes ``f0``, ``f1``, … for some fields of JSON objects."""
    return msgspec.defstruct(
        "Fields",
        [
            (
                f"f{index}",
                column.python_type if column.is_json_text else column.python_type | None,
                msgspec.field(
                    name=name, default=msgspec.Raw(b"null") if column.is_json_text else None
                ),
            )
            for index, (name, column) in enumerate(zip(names, columns, strict=True))
        ],
    )


class SerdeColumn:
    """The column of whole keys or values of a serde.

    Text, bytes, numbers and lists of them are such values; others are JSON text.
    """

    def __init__(self, serde: Serde[Any]) -> None:
        read: Callable[[bytes], Any]
        if type(serde) in _SERDES:
            self._type = ColumnType(object, _SERDES[type(serde)])
            read = bytes.decode if isinstance(serde, UuidSerde) else serde.deserialize
        else:
            self._type = JSON_TEXT
            read = json_writer(serde)
            if isinstance(serde, JsonSerde):
                own = column_type(shape_of(serde.type), is_camel_case=serde.rename == "camel")
                if not own.is_json_text and not pa.types.is_struct(own.arrow_type):
                    self._type = own
                    read = msgspec.json.Decoder(own.python_type | None).decode
        self._read = read

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the column."""
        return self._type.arrow_type

    def to_arrow(self, data: Iterable[bytes]) -> pa.Array:
        """Return the column of serialised keys or values."""
        return self._type.to_arrow(map(self._read, data))
