"""The `Serdes` factory: every serde there is, by name."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, overload

from headrace.durations import Duration, duration_ms
from headrace.records import K
from headrace.serdes.avro_serde import AvroSchema, AvroSerde
from headrace.serdes.base import FunctionSerde, SerdeLike, T
from headrace.serdes.deduce import serde_for
from headrace.serdes.json_serde import JsonSerde, Rename
from headrace.serdes.list_serde import ListSerde
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
    VoidSerde,
)
from headrace.serdes.protobuf_serde import ProtobufSerde
from headrace.serdes.registry import RegistryLike
from headrace.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde


class Serdes:
    """Makes serdes. The ones Kafka has too write the same bytes."""

    @staticmethod
    def string() -> StringSerde:
        """Return the serde of text, as UTF-8."""
        return StringSerde()

    @staticmethod
    def bytes() -> BytesSerde:
        """Return the serde that leaves bytes as they are."""
        return BytesSerde()

    @staticmethod
    def short() -> ShortSerde:
        """Return the serde of whole numbers of 16 bits."""
        return ShortSerde()

    @staticmethod
    def integer() -> IntegerSerde:
        """Return the serde of whole numbers of 32 bits."""
        return IntegerSerde()

    @staticmethod
    def long() -> LongSerde:
        """Return the serde of whole numbers of 64 bits."""
        return LongSerde()

    @staticmethod
    def float() -> FloatSerde:
        """Return the serde of real numbers of 32 bits."""
        return FloatSerde()

    @staticmethod
    def double() -> DoubleSerde:
        """Return the serde of real numbers of 64 bits."""
        return DoubleSerde()

    @staticmethod
    def boolean() -> BooleanSerde:
        """Return the serde of True and False."""
        return BooleanSerde()

    @staticmethod
    def uuid() -> UuidSerde:
        """Return the serde of UUIDs, as text."""
        return UuidSerde()

    @staticmethod
    def void() -> VoidSerde:
        """Return the serde of None, which has no bytes."""
        return VoidSerde()

    @staticmethod
    def list_of(inner: SerdeLike[T]) -> ListSerde[T]:
        """Return the serde of lists, in Kafka's layout; ``inner`` is that of the items."""
        return ListSerde(serde_for(inner))

    @overload
    @staticmethod
    def json(type: None = None, *, rename: None = None) -> JsonSerde[Any]: ...
    @overload
    @staticmethod
    def json(type: builtins.type[T], *, rename: Rename | None = None) -> JsonSerde[T]: ...
    @overload
    @staticmethod
    def json(type: object, *, rename: Rename | None = None) -> JsonSerde[Any]: ...
    @staticmethod
    def json(type: Any = None, *, rename: Rename | None = None) -> JsonSerde[Any]:  # noqa: A002
        """Return the serde of JSON: of ``type``, or of any shape if that is left out.

        Args:
            type: A dataclass, Struct, TypedDict, pydantic model, ``list[X]``, ….
            rename: ``"camel"`` spells the fields of dataclasses and TypedDicts in camelCase.
        """
        return JsonSerde(type, rename=rename)

    @overload
    @staticmethod
    def avro(
        schema: AvroSchema, type: None = None, *, registry: RegistryLike | None = None
    ) -> AvroSerde[Any]: ...
    @overload
    @staticmethod
    def avro(
        schema: AvroSchema, type: builtins.type[T], *, registry: RegistryLike | None = None
    ) -> AvroSerde[T]: ...
    @staticmethod
    def avro(
        schema: AvroSchema,
        type: Any = None,  # noqa: A002
        *,
        registry: RegistryLike | None = None,
    ) -> AvroSerde[Any]:
        """Return the serde of Avro.

        Args:
            schema: JSON text, or the dicts and lists it holds.
            type: The class to read into; by default fastavro's values.
            registry: A registry, or the URL, the settings or the client of Confluent's.
        """
        return AvroSerde(schema, type, registry)

    @staticmethod
    def protobuf(
        cls: builtins.type[T], *, registry: RegistryLike | None = None
    ) -> ProtobufSerde[T]:
        """Return the serde of Protobuf messages.

        Args:
            cls: The class that ``protoc`` made.
            registry: A registry, or the URL, the settings or the client of Confluent's.
        """
        return ProtobufSerde(cls, registry)

    @staticmethod
    def of(
        serialize: Callable[[T], builtins.bytes], deserialize: Callable[[builtins.bytes], T]
    ) -> FunctionSerde[T]:
        """Return a serde made of two functions. Neither ever sees None."""
        return FunctionSerde(serialize, deserialize)

    @staticmethod
    def time_windowed(inner: SerdeLike[K], size: Duration) -> TimeWindowedSerde[K]:
        """Return the serde of keys of windows of one size; ``inner`` is that of the key alone."""
        return TimeWindowedSerde(serde_for(inner), duration_ms(size, what="size"))

    @staticmethod
    def session_windowed(inner: SerdeLike[K]) -> SessionWindowedSerde[K]:
        """Return the serde of keys of sessions; ``inner`` is that of the key alone."""
        return SessionWindowedSerde(serde_for(inner))
