"""Turns keys and values into bytes and back."""

from headrace.serdes.avro_serde import AvroSerde
from headrace.serdes.base import FunctionSerde, Serde, SerdeLike
from headrace.serdes.json_serde import JsonSerde
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
from headrace.serdes.registry import (
    ConfluentSchemaRegistry,
    Schema,
    SchemaReference,
    SchemaRegistry,
)
from headrace.serdes.serdes import Serdes
from headrace.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = [
    "AvroSerde",
    "BooleanSerde",
    "BytesSerde",
    "ConfluentSchemaRegistry",
    "DoubleSerde",
    "FloatSerde",
    "FunctionSerde",
    "IntegerSerde",
    "JsonSerde",
    "ListSerde",
    "LongSerde",
    "ProtobufSerde",
    "Schema",
    "SchemaReference",
    "SchemaRegistry",
    "Serde",
    "SerdeLike",
    "Serdes",
    "SessionWindowedSerde",
    "ShortSerde",
    "StringSerde",
    "TimeWindowedSerde",
    "UuidSerde",
    "VoidSerde",
]
