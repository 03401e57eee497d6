"""Lists, in the layout of Kafka's ListSerializer."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from operator import lt
from typing import Any

from headrace.serdes.base import Serde, T, serde_for_topic, wrong_type
from headrace.serdes.primitives import (
    UUID_SIZE,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    UuidSerde,
)

# Kafka's `FIXED_LENGTH_SERIALIZERS`: booleans are not among them.
_SIZES: dict[type[Serde[Any]], int] = {
    ShortSerde: ShortSerde.size,
    IntegerSerde: IntegerSerde.size,
    LongSerde: LongSerde.size,
    FloatSerde: FloatSerde.size,
    DoubleSerde: DoubleSerde.size,
    UuidSerde: UUID_SIZE,
}

_INT = struct.Struct(">i")
_VARIABLE = struct.Struct(">bi")
_NULL = _INT.pack(-1)
_HOW_TO_FIX = "Read the data with the serde that wrote it."


@dataclass(frozen=True)
class ListSerde(Serde[list[T]]):
    """A list of what the inner serde writes; items may be None.

    Kafka writes items of a constant size and others in two ways::

        constant   00 │ number of nulls │ their indexes │ number of items │ item │ item …
        variable   01 │ number of items │ size │ item │ -1 (a null) │ size │ item …
    """

    inner: Serde[T]
    """Writes and reads each item."""

    def serialize(self, value: list[T], /) -> bytes:
        if not isinstance(value, (list, tuple)):
            raise wrong_type(self, "list", value)
        if type(self.inner) in _SIZES:
            return self._bytes_of_constant_items(value)
        write = self.inner.serialize
        parts = [_VARIABLE.pack(1, len(value))]
        for item in value:
            if item is None:
                parts.append(_NULL)
            else:
                data = write(item)
                parts.append(_INT.pack(len(data)))
                parts.append(data)
        return b"".join(parts)

    def deserialize(self, data: bytes, /) -> list[T]:
        try:
            if data[:1] == b"\x01":
                items, end = self._variable_items(data)
            elif data[:1] == b"\x00":
                items, end = self._constant_items(data)
            else:
                msg = f"ListSerde reads lists that start with 0 or 1. {_HOW_TO_FIX}"
                raise ValueError(msg)
        except struct.error:
            end = -1
        if end != len(data):
            msg = f"ListSerde got {len(data)} bytes, which is not what a list takes. {_HOW_TO_FIX}"
            raise ValueError(msg)
        return items

    def for_topic(self, topic: str, *, is_key: bool) -> ListSerde[T]:
        """Return the serde to use on ``topic``: one whose inner serde is bound to it."""
        return ListSerde(serde_for_topic(self.inner, topic, is_key=is_key))

    def _bytes_of_constant_items(self, value: list[T]) -> bytes:
        write = self.inner.serialize
        nulls = [position for position, item in enumerate(value) if item is None]
        head = struct.pack(f">b{len(nulls) + 2}i", 0, len(nulls), *nulls, len(value))
        return head + b"".join([write(item) for item in value if item is not None])

    def _variable_items(self, data: bytes) -> tuple[list[T], int]:
        """Return the items, and where they end."""
        read = self.inner.deserialize
        items: list[Any] = []
        end: int = _VARIABLE.size
        for _ in range(_VARIABLE.unpack_from(data)[1]):
            (size,) = _INT.unpack_from(data, end)
            start = end + _INT.size
            end = start if size == -1 else start + size
            if not start <= end <= len(data):
                raise struct.error
            items.append(None if size == -1 else read(data[start:end]))
        return items, end

    def _constant_items(self, data: bytes) -> tuple[list[T], int]:
        """Return the items, and where they end."""
        size = _SIZES.get(type(self.inner))
        if size is None:
            inner = type(self.inner).__name__
            msg = f"ListSerde got items of one size, but {inner} writes any size. {_HOW_TO_FIX}"
            raise ValueError(msg)
        (null_count,) = _INT.unpack_from(data, 1)
        if not 0 <= null_count <= len(data) // _INT.size:
            raise struct.error
        *nulls, count = struct.unpack_from(f">{null_count + 1}i", data, 5)
        start = 5 + _INT.size * (null_count + 1)
        end: int = start + size * (count - null_count)
        if end != len(data) or not all(map(lt, [-1, *nulls], [*nulls, count])):
            raise struct.error
        read = self.inner.deserialize
        missing = {*nulls}
        starts = iter(range(start, end, size))
        items: list[Any] = []
        for position in range(count):
            at = -1 if position in missing else next(starts)
            items.append(None if at < 0 else read(data[at : at + size]))
        return items, end
