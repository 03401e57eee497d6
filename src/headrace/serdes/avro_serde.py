"""Avro, alone or with a schema registry."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, overload
from uuid import UUID

import msgspec

from headrace.errors import TopologyError
from headrace.serdes.avro_bounds import AvroBounds, check_schema_size
from headrace.serdes.avro_checks import avro_check
from headrace.serdes.base import Serde, T, classes_of, type_name, without_value, wrong_type
from headrace.serdes.registry import (
    FRAME_SIZE,
    RegistryLike,
    Schema,
    SchemaRegistry,
    framed_schema_id,
    registered_frame,
    schema_registry,
    subject_of,
)

AvroSchema: TypeAlias = str | Mapping[str, Any] | Sequence[Any]
"""A schema as JSON text, or as the dicts and lists that such text holds."""

# fastavro writes these by itself, where the schema has their logical type.
_LOGICAL_TYPES = (bytes, date, datetime, time, timedelta, Decimal, UUID)


class AvroSerde(Serde[T]):
    """Avro of one schema; with a registry in Confluent's format, which numbers the schema.

    With a registry, what is read may have been written with another schema, and Avro's rules for
    resolving the two apply. The subject is the topic's name with ``-key`` or ``-value``.

    Args:
        schema: The schema of what is written, and the one that readers see.
        type: A dataclass, Struct or TypedDict to read into; left out, what fastavro gives.
        registry: A registry, or the URL, the settings or the client of Confluent's.

    Raises:
        TopologyError: The schema cannot be read.
    """

    @overload
    def __init__(
        self: AvroSerde[Any],
        schema: AvroSchema,
        type: None = None,
        registry: RegistryLike | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self, schema: AvroSchema, type: builtins.type[T], registry: RegistryLike | None = None
    ) -> None: ...
    def __init__(
        self,
        schema: AvroSchema,
        type: builtins.type[Any] | None = None,  # noqa: A002
        registry: RegistryLike | None = None,
    ) -> None:
        self.schema = schema if isinstance(schema, str) else json.dumps(schema)
        self.type = type
        self.registry = None if registry is None else schema_registry(registry)
        self.subject: str | None = None
        self._prepare()

    def _prepare(self) -> None:
        """Create the objects that are not shipped: each of Spark's workers creates its own."""
        self._avro = _fastavro()
        try:
            self._writer_schema = self._parse(Schema(self.schema, "AVRO"))
        except ValueError as error:
            msg = f"The Avro schema cannot be used: {error}."
            raise TopologyError(msg) from None
        self._parsed = self._writer_schema.schema
        self._check = avro_check(self._parsed)
        self._accepts = (object,) if self.type is None else classes_of(self.type)
        self._frame = b""
        self._writers: dict[int, _Parsed] = {}

    def serialize(self, value: T, /) -> bytes:
        if not isinstance(value, self._accepts):
            raise wrong_type(self, type_name(self.type), value)
        buffer = BytesIO()
        if self.registry is not None:
            buffer.write(self._frame or self._registered_frame(self.registry))
        try:
            plain = self._plain(value)
            self._check(plain)
            self._avro.schemaless_writer(buffer, self._parsed, plain)
        except Exception as error:
            msg = f"The {type(value).__name__} does not fit the Avro schema {self._name}: {error}."
            raise ValueError(msg) from None
        return buffer.getvalue()

    def deserialize(self, data: bytes, /) -> T:
        buffer = BytesIO(data)
        writer = self._writer_schema
        if self.registry is not None:
            writer = self._writer(self.registry, framed_schema_id(data))
            buffer.seek(FRAME_SIZE)
        reader = None if writer is self._writer_schema else self._parsed
        read = self._avro.schemaless_reader
        if writer.bounds.may_nest_too_deep(len(data)):
            read = _slow_reader()  # it counts how deep it is
        if writer.bounds.may_hold_too_many(len(data)):
            msg = f"The data of the Avro schema {self._name} could hold more than a million nulls."
            raise ValueError(msg)
        try:
            plain = read(buffer, writer.schema, reader)
        except RecursionError:
            msg = f"The data of the Avro schema {self._name} is nested too deeply to be read."
            raise ValueError(msg) from None
        except Exception as error:
            why = str(error) or type(error).__name__
            msg = f"The data does not fit the Avro schema {self._name}: {why}."
            raise ValueError(msg) from None
        if rest := buffer.read():
            msg = (
                f"The data is {len(rest)} bytes longer than the Avro schema {self._name} says. "
                "Read it with the schema that wrote it."
            )
            raise ValueError(msg)
        return self._typed(plain)

    def for_topic(self, topic: str, *, is_key: bool) -> AvroSerde[T]:
        """Return the serde to use on ``topic``, whose schemas have the topic's subject."""
        if self.registry is None:
            return self
        bound: AvroSerde[Any] = AvroSerde(self.schema, self.type, self.registry)
        bound.subject = subject_of(topic, is_key=is_key)
        return bound

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AvroSerde):
            return NotImplemented
        return self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash((AvroSerde, self.schema, self.subject))

    def __repr__(self) -> str:
        type_ = "" if self.type is None else f", {type_name(self.type)}"
        return f"AvroSerde({self._name}{type_})"

    def __getstate__(self) -> tuple[object, ...]:
        return self._facts()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.schema, self.type, self.registry, self.subject = state
        self._prepare()

    def _facts(self) -> tuple[object, ...]:
        return self.schema, self.type, self.registry, self.subject

    @property
    def _name(self) -> str:
        named = isinstance(self._parsed, dict) and "name" in self._parsed
        return repr(self._parsed["name"] if named else self.schema)

    def _plain(self, value: T) -> Any:
        if self.type is None:
            return value
        return msgspec.to_builtins(value, builtin_types=_LOGICAL_TYPES)

    def _typed(self, plain: Any) -> T:
        target: Any = Any if self.type is None else self.type
        try:
            value: T = msgspec.convert(plain, target, builtin_types=_LOGICAL_TYPES)
        except (msgspec.ValidationError, RecursionError) as error:
            msg = f"The Avro data does not fit {type_name(self.type)}: {without_value(str(error))}."
            raise ValueError(msg) from None
        return value

    def _registered_frame(self, registry: SchemaRegistry) -> bytes:
        self._frame = registered_frame(registry, self.subject, Schema(self.schema, "AVRO"))
        return self._frame

    def _writer(self, registry: SchemaRegistry, schema_id: int) -> _Parsed:
        writer = self._writers.get(schema_id)
        if writer is None:
            writer = self._writers[schema_id] = self._parse(registry.schema_of(schema_id))
        return writer

    def _parse(self, schema: Schema) -> _Parsed:
        named: dict[str, Any] = {}
        try:
            imported = _imported(schema)
            check_schema_size([schema.text, *(each.text for each in imported)])
            for each in imported:
                self._avro.parse_schema(_json(each.text), named)
            parsed = self._avro.parse_schema(_json(schema.text), named)
        except Exception as error:
            raise ValueError(str(error)) from None
        return _Parsed(parsed, AvroBounds(parsed, named))


class _Parsed(NamedTuple):
    schema: Any
    bounds: AvroBounds


def _imported(schema: Schema) -> dict[Schema, None]:
    """Return the schemas that one imports, directly or not, each after those it needs itself."""
    imported: dict[Schema, None] = {}
    for reference in schema.references:
        imported.update(_imported(reference.schema))
        imported[reference.schema] = None
    return imported


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # The name of a primitive type, such as `string`.


def _fastavro() -> ModuleType:
    try:
        import fastavro
    except ImportError as error:
        msg = 'AvroSerde needs an extra: `pip install "headrace[avro]"`.'
        raise ModuleNotFoundError(msg) from error
    return fastavro


def _slow_reader() -> Callable[..., Any]:
    """Return fastavro's reader in Python, which Python ends before its stack does."""
    from fastavro import _read_py

    read: Callable[..., Any] = _read_py.schemaless_reader
    return read
