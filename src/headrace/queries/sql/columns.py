"""The columns of a store's table, and how its rows become SQL values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import inspect as shapes

from headrace.queries.catalog import QueryableStore
from headrace.queries.json_values import json_writer
from headrace.queries.reads import RowBatch
from headrace.queries.tables.sql_values import SqlValue
from headrace.queries.tables.value_fields import (
    ValueField,
    free_name,
    shape_of,
    value_fields,
)
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

KEY, VALUE, TIMESTAMP, WINDOW_START, WINDOW_END, VALID_FROM = range(6)
FIXED = ("key", "value", "timestamp", "window_start", "window_end", "valid_from")
"""The columns that every table has; fields of values follow."""

_LARGEST = 2**63
_Integer: Any = Annotated[int, msgspec.Meta(ge=-_LARGEST, le=_LARGEST - 1)]
_Scalar = _Integer | float | str | bool | None
_NO_VALUE = msgspec.Raw(b"null")

_AFFINITIES: dict[type[Serde[Any]], str] = {
    StringSerde: "TEXT",
    UuidSerde: "TEXT",
    BytesSerde: "BLOB",
    ShortSerde: "INTEGER",
    IntegerSerde: "INTEGER",
    LongSerde: "INTEGER",
    BooleanSerde: "INTEGER",
    FloatSerde: "REAL",
    DoubleSerde: "REAL",
}
_FIELD_TYPES: dict[type[shapes.Type], tuple[Any, str]] = {
    shapes.IntType: (_Integer | None, "INTEGER"),
    shapes.BoolType: (bool | None, "INTEGER"),
    shapes.FloatType: (float | None, "REAL"),
    shapes.DecimalType: (float | None, "REAL"),
    shapes.StrType: (str | None, "TEXT"),
    shapes.BytesType: (str | None, "TEXT"),
    shapes.DateTimeType: (_Scalar, ""),
    shapes.DateType: (_Scalar, ""),
    shapes.TimeType: (_Scalar, ""),
    shapes.UUIDType: (str | None, "TEXT"),
    shapes.EnumType: (_Scalar, ""),
    shapes.LiteralType: (_Scalar, ""),
}
_decode = msgspec.json.decode
_decode_scalar = msgspec.json.Decoder(_Scalar).decode


class Column(NamedTuple):
    """One column of a table."""

    name: str
    affinity: str
    is_hidden: bool = False
    """Whether ``SELECT *`` leaves the column out, because stores of this kind never fill it."""


class StoreColumns:
    """The columns of one store's table.

    A key or value that is text, bytes or a number is such an SQL value; other ones are JSON text.
    Fields follow the fixed columns, under their names in JSON; a name that is taken gets an
    underscore behind it.
    """

    def __init__(self, store: QueryableStore) -> None:
        self._fields = value_fields(store.value)
        self._key = _ValueReader(store.key)
        self._value = _ValueReader(store.value)
        self._json = None if isinstance(store.value, JsonSerde) else json_writer(store.value)
        self._readers: dict[tuple[int, ...], _FieldReader] = {}
        self.columns = tuple(_columns(store, self._fields))

    def declaration(self) -> str:
        """Return the statement that declares the table to SQLite."""
        parts = (
            f"{_quoted(each.name)} {each.affinity}{' HIDDEN' if each.is_hidden else ''}"
            for each in self.columns
        )
        return f"CREATE TABLE store({', '.join(parts)})"

    def rows(self, batch: RowBatch, used: Sequence[int]) -> Iterable[Any]:
        """Return the rows of a batch: values of the column in use, or tuples if several are.

        A tuple runs from the first column in use to the last, with None for those between. If
        none is in use, SQLite counts rows.
        """
        if not used:
            return repeat(None, len(batch))
        columns = [*self._used_columns(batch, used)]
        return columns[0] if len(columns) == 1 else zip(*columns, strict=True)

    def _used_columns(self, batch: RowBatch, used: Sequence[int]) -> Iterator[Iterable[Any]]:
        fields = tuple(each for each in used if each >= len(FIXED))
        of_fields = iter(self._field_columns(batch, fields) if fields else ())
        for index in range(used[0], used[-1] + 1):
            if index not in used:
                yield repeat(None, len(batch))
            elif index >= len(FIXED):
                yield next(of_fields)
            else:
                yield self._fixed_column(batch, index)

    def _fixed_column(self, batch: RowBatch, index: int) -> Iterable[SqlValue]:
        if index == KEY:
            return self._key.read(batch.keys())
        if index == VALUE:
            return self._value.read(batch.values())
        if index == TIMESTAMP:
            return batch.timestamps()
        if self.columns[index].is_hidden:
            return repeat(None, len(batch))
        return batch.ends() if index == WINDOW_END else batch.starts()

    def _field_columns(self, batch: RowBatch, fields: tuple[int, ...]) -> list[Iterable[SqlValue]]:
        values = batch.values()
        documents = values if self._json is None else [*map(self._json, values)]
        return self._reader(fields).read(documents)

    def _reader(self, used: tuple[int, ...]) -> _FieldReader:
        reader = self._readers.get(used)
        if reader is None:
            fields = [self._fields[each - len(FIXED)] for each in used]
            reader = self._readers[used] = _FieldReader(fields)
        return reader


class _ValueReader:
    """Makes SQL values of the data of one serde."""

    def __init__(self, serde: Serde[Any]) -> None:
        self._to_json = json_writer(serde)
        self._read: Callable[[bytes], Any]
        if isinstance(serde, StringSerde | UuidSerde):
            self._read = bytes.decode
        elif type(serde) in _AFFINITIES:
            self._read = serde.deserialize
        elif isinstance(serde, JsonSerde) and not is_json_text(serde):
            self._read = _decode_scalar
        else:
            self._read = self._show

    def read(self, data: Sequence[bytes]) -> Iterable[SqlValue]:
        """Return the SQL values of serialised data."""
        try:
            return [*map(self._read, data)]
        except ValueError:  # some data is of another type
            return [*map(self._read_or_show, data)]

    def _read_or_show(self, data: bytes) -> SqlValue:
        try:
            value: SqlValue = self._read(data)
        except ValueError:
            return self._show(data)
        return value

    def _show(self, data: bytes) -> str:
        return self._to_json(data).decode()


def is_json_text(serde: Serde[Any]) -> bool:
    """Return whether data of a serde is shown as the JSON text that it is."""
    return isinstance(serde, JsonSerde) and type(shape_of(serde.type)) not in _FIELD_TYPES


def _columns(store: QueryableStore, fields: Sequence[ValueField]) -> Iterator[Column]:
    shown = {
        "timestamp": store.type.has_timestamps,
        "window_start": store.type.has_windows,
        "window_end": store.type.has_windows,
        "valid_from": store.type.is_versioned,
    }
    names = []
    for name in FIXED:
        serde = {"key": store.key, "value": store.value}.get(name)
        affinity = "INTEGER" if serde is None else _affinity(serde)
        names.append(name)
        yield Column(name, affinity, not shown.get(name, True))
    for field in fields:
        names.append(free_name(field.name, names))
        yield Column(names[-1], _FIELD_TYPES.get(type(field.shape), (None, ""))[1])


def _affinity(serde: Serde[Any]) -> str:
    if isinstance(serde, JsonSerde):
        return _FIELD_TYPES.get(type(shape_of(serde.type)), (None, ""))[1]
    return _AFFINITIES.get(type(serde), "")


class _FieldReader:
    """Reads some fields of JSON values, and skips the others."""

    def __init__(self, fields: Sequence[ValueField]) -> None:
        self._names = [field.name for field in fields]
        self._raw = [type(field.shape) not in _FIELD_TYPES for field in fields]
        members = [*map(_struct_field, range(len(fields)), fields)]
        struct = msgspec.defstruct("Fields", members, gc=False)
        # JSON has Decimals, and the 64-bit numbers of Protobuf, as text: they become numbers.
        self._decode = msgspec.json.Decoder(struct, strict=False).decode

    def read(self, documents: Sequence[bytes]) -> list[Iterable[SqlValue]]:
        """Return the values of each field."""
        try:
            objects = [*map(self._decode, documents)]
        except ValueError:  # a field of another type, or a number that SQLite cannot hold
            values = [self._read_slowly(each) for each in documents]
            return [*zip(*values, strict=True)]
        columns = [map(attrgetter(f"f{index}"), objects) for index in range(len(self._names))]
        return [
            map(_from_raw, column) if is_raw else column
            for column, is_raw in zip(columns, self._raw, strict=True)
        ]

    def _read_slowly(self, document: bytes) -> list[SqlValue]:
        try:
            value = _decode(document)
        except ValueError:
            value = None
        members = value if isinstance(value, dict) else {}
        return [_from_plain(members.get(name)) for name in self._names]


def _struct_field(index: int, field: ValueField) -> tuple[str, Any, Any]:
    known = _FIELD_TYPES.get(type(field.shape))
    type_, default = (msgspec.Raw, _NO_VALUE) if known is None else (known[0], None)
    return f"f{index}", type_, msgspec.field(name=field.name, default=default)


def _from_raw(raw: msgspec.Raw) -> SqlValue:
    data = bytes(raw)
    return data.decode() if data[:1] in (b"{", b"[") else _from_plain(_decode(data))


def _from_plain(value: Any) -> SqlValue:
    """Return the SQL value of decoded JSON: objects and arrays are JSON text."""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        return float(value)
    scalar: SqlValue = value
    return scalar


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
