"""Text, bytes, numbers, booleans and UUIDs, in the byte layouts of Kafka's Java serdes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import nan
from numbers import Real
from operator import index
from typing import Any, ClassVar, NoReturn, Protocol
from uuid import UUID

import msgspec

from headrace.serdes.base import Serde, wrong_type

_encode_text = str.encode
_encode_json = msgspec.json.Encoder().encode
_decode_json_uuid = msgspec.json.Decoder(UUID).decode

UUID_SIZE = 36
"""How many bytes a UUID takes: Kafka writes its text."""

_WRITERS = {
    1: "BooleanSerde",
    2: "ShortSerde",
    4: "IntegerSerde or FloatSerde",
    8: "LongSerde or DoubleSerde",
    UUID_SIZE: "UuidSerde",
}


def _wrong_size(serde: object, size: int, data: bytes) -> ValueError:
    writer = _WRITERS.get(len(data), "another serde")
    return ValueError(
        f"{type(serde).__name__} reads {size} bytes, but got {len(data)}. "
        f"Perhaps {writer} wrote them: read them with the serde that did."
    )


@dataclass(frozen=True)
class StringSerde(Serde[str]):
    """Text, as UTF-8. Refuses bytes that are not UTF-8, where Java puts U+FFFD in their place."""

    def serialize(self, value: str, /) -> bytes:
        try:
            return _encode_text(value)
        except UnicodeEncodeError as error:
            msg = (
                f"StringSerde writes UTF-8, which has no lone surrogates ({error.reason}). "
                f"Remove character {error.start} of the text."
            )
            raise ValueError(msg) from None
        except TypeError:
            raise wrong_type(self, "str", value) from None

    def deserialize(self, data: bytes, /) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            msg = (
                f"StringSerde reads UTF-8, but byte {error.start} of {len(data)} is not "
                f"({error.reason}). Read the data with the serde that wrote it."
            )
            raise ValueError(msg) from None


@dataclass(frozen=True)
class BytesSerde(Serde[bytes]):
    """Bytes, as they are."""

    def serialize(self, value: bytes, /) -> bytes:
        if type(value) is bytes:
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise wrong_type(self, "bytes", value)

    def deserialize(self, data: bytes, /) -> bytes:
        return data


class _Pack(Protocol):
    def __call__(self, number: Any, /) -> bytes: ...


class _Unpack(Protocol):
    def __call__(self, data: bytes, /) -> tuple[Any, ...]: ...


class _NumberSerde:
    """Packs and unpacks one number of a fixed layout, big-endian as in Java."""

    size: ClassVar[int]
    """How many bytes a number takes."""
    _pack: ClassVar[_Pack]
    _unpack: ClassVar[_Unpack]

    def __init_subclass__(cls, layout: str | None = None) -> None:
        super().__init_subclass__()
        if layout is not None:
            packing = struct.Struct(layout)
            cls.size, cls._pack, cls._unpack = packing.size, packing.pack, packing.unpack


class _WholeNumberSerde(_NumberSerde, Serde[int]):
    def serialize(self, value: int, /) -> bytes:
        if type(value) is not int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise wrong_type(self, "int", value)
            value = index(value)
        try:
            return self._pack(value)
        except struct.error:
            self._refuse(value)

    def deserialize(self, data: bytes, /) -> int:
        try:
            number: int = self._unpack(data)[0]
        except struct.error:
            raise _wrong_size(self, self.size, data) from None
        return number

    def _refuse(self, value: int) -> NoReturn:
        limit = 1 << (8 * self.size - 1)
        wider = "text" if self.size == LongSerde.size else "LongSerde"
        msg = (
            f"{type(self).__name__} holds {-limit} to {limit - 1}, but got {value}. "
            f"Use {wider} for larger numbers."
        )
        raise ValueError(msg) from None


@dataclass(frozen=True)
class ShortSerde(_WholeNumberSerde, layout=">h"):
    """Whole numbers of 16 bits."""


@dataclass(frozen=True)
class IntegerSerde(_WholeNumberSerde, layout=">i"):
    """Whole numbers of 32 bits."""


@dataclass(frozen=True)
class LongSerde(_WholeNumberSerde, layout=">q"):
    """Whole numbers of 64 bits: what `int` means."""


class _RealNumberSerde(_NumberSerde, Serde[float]):
    def serialize(self, value: float, /) -> bytes:
        if type(value) is not float:
            if isinstance(value, bool) or not isinstance(value, Real):
                raise wrong_type(self, "float", value)
        elif value != value:
            # Equal keys need equal bytes, so there is one NaN, as in `Double.doubleToLongBits`.
            value = nan
        try:
            return self._pack(value)
        except (OverflowError, struct.error):
            msg = (
                f"{type(self).__name__} holds numbers of {8 * self.size} bits, but got {value}, "
                "which is too large. Use DoubleSerde, or text for larger numbers."
            )
            raise ValueError(msg) from None

    def deserialize(self, data: bytes, /) -> float:
        try:
            number: float = self._unpack(data)[0]
        except struct.error:
            raise _wrong_size(self, self.size, data) from None
        return number


@dataclass(frozen=True)
class FloatSerde(_RealNumberSerde, layout=">f"):
    """Real numbers of 32 bits: about seven digits of a float survive."""


@dataclass(frozen=True)
class DoubleSerde(_RealNumberSerde, layout=">d"):
    """Real numbers of 64 bits: what `float` means."""


@dataclass(frozen=True)
class BooleanSerde(Serde[bool]):
    """True or False, as one byte."""

    def serialize(self, value: bool, /) -> bytes:  # noqa: FBT001 - the value, not an option
        if value is True:
            return b"\x01"
        if value is False:
            return b"\x00"
        raise wrong_type(self, "bool", value)

    def deserialize(self, data: bytes, /) -> bool:
        if data == b"\x01":
            return True
        if data == b"\x00":
            return False
        if len(data) != 1:
            raise _wrong_size(self, 1, data)
        msg = f"BooleanSerde reads 0 or 1, but got the byte {data[0]}. Another serde wrote it."
        raise ValueError(msg)


@dataclass(frozen=True)
class UuidSerde(Serde[UUID]):
    """UUIDs, as their text of 36 characters."""

    def serialize(self, value: UUID, /) -> bytes:
        if type(value) is UUID:
            return _encode_json(value)[1:-1]
        if isinstance(value, UUID):
            return str(value).encode()
        raise wrong_type(self, "UUID", value)

    def deserialize(self, data: bytes, /) -> UUID:
        if len(data) != UUID_SIZE:
            raise _wrong_size(self, UUID_SIZE, data)
        try:
            return _decode_json_uuid(b'"%b"' % data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            msg = "UuidSerde reads the text of a UUID, but got 36 bytes that are none."
            raise ValueError(msg) from None


@dataclass(frozen=True)
class VoidSerde(Serde[None]):
    """Nothing but None, which is Kafka's null and has no bytes."""

    def serialize(self, value: None, /) -> NoReturn:
        if value is None:
            msg = "VoidSerde has no bytes to write: None is Kafka's null. Write null instead."
            raise TypeError(msg)
        raise wrong_type(self, "None", value)

    def deserialize(self, data: bytes, /) -> NoReturn:
        msg = f"VoidSerde reads null, but got {len(data)} bytes. Use the serde that wrote them."
        raise ValueError(msg)
