"""Rows of stores as Arrow tables and streams, with a typed column for each field of the values.

Needs pyarrow, which comes with the extra ``spark``.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from headrace.queries.catalog import QueryableStore
from headrace.queries.json_values import json_writer
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import Row
from headrace.queries.tables.arrow_types import ColumnType, SerdeColumn, column_type, decoded_type
from headrace.queries.tables.value_fields import free_name, value_fields
from headrace.serdes.base import Serde
from headrace.serdes.json_serde import JsonSerde

BATCH_ROWS = 10_000
"""How many rows a batch of a table has."""

_TIME = pa.timestamp("ms", tz="UTC")
_TAKEN = ("key", "value", "timestamp", "window_start", "window_end", "valid_from")
"""The names that no field has: as in SQL, such a field gets an underscore behind its name."""
_TIMESTAMP, _START, _END = "timestamp", "start", "end"


class ArrowRows:
    """Turns the rows of one store into Arrow batches.

    The columns are ``key``, one for each field of the values (else ``value``), and those of
    ``timestamp``, ``window_start``, ``window_end`` and ``valid_from`` that the kind of store has.
    A column whose type Arrow cannot express is JSON text.
    """

    def __init__(self, store: QueryableStore) -> None:
        self._name = store.name
        self._key = SerdeColumn(store.key)
        self._values = _Fields(store.value) if value_fields(store.value) else _Value(store.value)
        self._times = _time_columns(store)
        columns: list[tuple[str, pa.DataType]] = [("key", self._key.arrow_type)]
        columns += self._values.columns
        columns += [(name, _TIME) for name in self._times]
        self.schema: pa.Schema = pa.schema(columns)
        """The names and types of the columns."""

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return rows as a record batch.

        Raises:
            QueryProblemError: Data in the store does not fit its type.
        """
        try:
            columns = [self._key.to_arrow(row.key for row in rows)]
            columns += self._values.to_arrow([row.value for row in rows])
        except (ValueError, TypeError, OverflowError) as error:
            msg = (
                f"Store {self._name!r} has data that does not fit its type: {error}. "
                "Read the store as JSON."
            )
            raise QueryProblemError(ProblemCode.BAD_REQUEST, msg) from None
        columns += [pa.array(map(read, rows), _TIME) for read in self._times.values()]
        return pa.record_batch(columns, schema=self.schema)

    def batches(self, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
        """Yield all rows as record batches."""
        rows = iter(rows)
        while batch := [*islice(rows, BATCH_ROWS)]:
            yield self.batch(batch)


def arrow_table(store: QueryableStore, rows: Iterable[Row]) -> pa.Table:
    """Return the rows of a store as a table.

    Raises:
        QueryProblemError: Data in the store does not fit its type.
    """
    arrow = ArrowRows(store)
    return pa.Table.from_batches(arrow.batches(rows), arrow.schema)


class ArrowStream:
    """Writes the rows of one store as the parts of an Arrow IPC stream."""

    def __init__(self, store: QueryableStore) -> None:
        self._arrow = ArrowRows(store)
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, self._arrow.schema)

    def write(self, rows: Sequence[Row]) -> bytes:
        """Return the next part of the stream: these rows."""
        self._writer.write_batch(self._arrow.batch(rows))
        return self._taken()

    def end(self) -> bytes:
        """Return the last part of the stream."""
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


class _Value:
    """The one column of values without fields."""

    def __init__(self, serde: Serde[Any]) -> None:
        self._column = SerdeColumn(serde)
        self.columns = [("value", self._column.arrow_type)]

    def to_arrow(self, data: Sequence[bytes]) -> list[pa.Array]:
        return [self._column.to_arrow(data)]


class _Fields:
    """A column for each field of the values."""

    def __init__(self, serde: Serde[Any]) -> None:
        fields = value_fields(serde)
        is_camel_case = isinstance(serde, JsonSerde) and serde.rename == "camel"
        self._types: list[ColumnType] = [
            column_type(field.shape, is_camel_case=is_camel_case) for field in fields
        ]
        names = [*_TAKEN]
        for field in fields:
            names.append(free_name(field.name, names))
        self.columns = [
            (name, type_.arrow_type)
            for name, type_ in zip(names[len(_TAKEN) :], self._types, strict=True)
        ]
        self._to_json = None if isinstance(serde, JsonSerde) else json_writer(serde)
        decoded = decoded_type([field.name for field in fields], self._types)
        # Protobuf's JSON has 64-bit numbers as text.
        self._decode = msgspec.json.Decoder(decoded, strict=False).decode

    def to_arrow(self, data: Sequence[bytes]) -> list[pa.Array]:
        documents = data if self._to_json is None else map(self._to_json, data)
        objects = [*map(self._decode, documents)]
        return [
            type_.to_arrow(map(attrgetter(f"f{index}"), objects))
            for index, type_ in enumerate(self._types)
        ]


def _time_columns(store: QueryableStore) -> dict[str, attrgetter[int | None]]:
    """Return the columns of times of a store, by their names, and how they are read from rows."""
    columns = {}
    if store.type.has_timestamps:
        columns["timestamp"] = attrgetter(_TIMESTAMP)
    if store.type.has_windows:
        columns["window_start"] = attrgetter(_START)
        columns["window_end"] = attrgetter(_END)
    if store.type.is_versioned:
        columns["valid_from"] = attrgetter(_START)
    return columns
