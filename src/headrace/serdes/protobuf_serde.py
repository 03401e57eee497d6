"""Protobuf messages, alone or with a schema registry."""

from __future__ import annotations

import base64
import sys
from typing import Any

from headrace.errors import TopologyError
from headrace.serdes.base import Serde, T, type_name, wrong_type
from headrace.serdes.registry import (
    FRAME_SIZE,
    RegistryLike,
    Schema,
    SchemaReference,
    SchemaRegistry,
    framed_schema_id,
    registered_frame,
    schema_registry,
    subject_of,
)

# Every registry knows these.
_KNOWN_FILES = ("google/protobuf/", "google/type/", "confluent/")


class ProtobufSerde(Serde[T]):
    """Messages of one class; with a registry in Confluent's format, which numbers the schema.

    Args:
        cls: The class that ``protoc`` made.
        registry: A registry, or the URL, the settings or the client of Confluent's. The subject is
            the topic's name with ``-key`` or ``-value``; an imported file has its own name.

    Raises:
        TopologyError: The class is not that of a message.
    """

    def __init__(self, cls: type[T], registry: RegistryLike | None = None) -> None:
        if not is_message_class(cls):
            msg = (
                f"ProtobufSerde needs a class that `protoc` made, but got {cls!r}. "
                "Without one, use another serde."
            )
            raise TopologyError(msg)
        self.cls: type[Any] = cls
        self.registry = None if registry is None else schema_registry(registry)
        self.subject: str | None = None
        self._prefix = b""

    def serialize(self, value: T, /) -> bytes:
        if not isinstance(value, self.cls):
            raise wrong_type(self, type_name(self.cls), value)
        message: Any = value
        try:
            # Equal keys need equal bytes, so maps are sorted.
            data: bytes = message.SerializeToString(deterministic=True)
        except Exception as error:
            msg = f"The {type_name(self.cls)} cannot be written: {error}."
            raise ValueError(msg) from None
        if self.registry is None:
            return data
        return (self._prefix or self._registered_prefix(self.registry)) + data

    def deserialize(self, data: bytes, /) -> T:
        if self.registry is not None:
            framed_schema_id(data)
            data = data[_end_of_indexes(data) :]
        try:
            message: T = self.cls.FromString(data)
        except Exception as error:
            msg = f"The data is not a {type_name(self.cls)}: {error}."
            raise ValueError(msg) from None
        return message

    def for_topic(self, topic: str, *, is_key: bool) -> ProtobufSerde[T]:
        """Return the serde to use on ``topic``, whose schemas have the topic's subject."""
        if self.registry is None:
            return self
        bound: ProtobufSerde[T] = ProtobufSerde(self.cls, self.registry)
        bound.subject = subject_of(topic, is_key=is_key)
        return bound

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProtobufSerde):
            return NotImplemented
        ours, theirs = (self.cls, self.registry, self.subject), (other.cls, other.registry)
        return ours == (*theirs, other.subject)

    def __hash__(self) -> int:
        return hash((ProtobufSerde, self.cls, self.subject))

    def __repr__(self) -> str:
        return f"ProtobufSerde({type_name(self.cls)})"

    def _registered_prefix(self, registry: SchemaRegistry) -> bytes:
        descriptor = self.cls.DESCRIPTOR
        frame = registered_frame(registry, self.subject, _schema(descriptor.file))
        self._prefix = frame + _bytes_of_indexes(_indexes(descriptor))
        return self._prefix


def is_message_class(type_: object) -> bool:
    """Return whether a type is the class of Protobuf messages."""
    # Someone who has such a class has imported Protobuf; those who have none need not.
    protobuf = sys.modules.get("google.protobuf.message")
    return protobuf is not None and isinstance(type_, type) and issubclass(type_, protobuf.Message)


def _schema(file: Any) -> Schema:
    references = tuple(
        SchemaReference(imported.name, imported.name, _schema(imported))
        for imported in file.dependencies
        if not imported.name.startswith(_KNOWN_FILES)
    )
    text = base64.b64encode(file.serialized_pb).decode()
    return Schema(text, "PROTOBUF", references)


def _indexes(descriptor: Any) -> list[int]:
    """Return where a message stands in its file: its index, after those of the ones around it."""
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_indexes(outer), [inner.name for inner in outer.nested_types].index(descriptor.name)]


def _bytes_of_indexes(indexes: list[int]) -> bytes:
    """Return the indexes as Confluent writes them: the first message of a file is one zero."""
    numbers = [0] if indexes == [0] else [len(indexes), *indexes]
    return b"".join(_varint(2 * number) for number in numbers)


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*data, number))


def _end_of_indexes(data: bytes) -> int:
    """Return where the message begins, after its schema's number and the indexes."""
    position, count = _read_varint(data, FRAME_SIZE)
    for _ in range(count // 2):
        position, _ = _read_varint(data, position)
    return position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the position after a varint, and the number it holds."""
    number = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position, number
        shift += 7
    msg = "The data ends within the indexes of its message. Read it with the serde that wrote it."
    raise ValueError(msg)
