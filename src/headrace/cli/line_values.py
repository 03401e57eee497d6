"""Reads and writes keys and values as text in a line."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec

from headrace.serdes.base import Serde
from headrace.serdes.serdes import Serdes

_JSON = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


class LineValueError(ValueError):
    """A text is not of its type."""


class LineFormat:
    """A format in which `headrace consume` prints the bytes of a key or value."""

    def text_of(self, data: bytes | None, null_marker: str | None) -> str:
        """Return bytes as text; those that cannot be decoded in hexadecimal, with the reason."""
        if data is None:
            return "null" if null_marker is None else null_marker
        try:
            value = self.decode(data)
        except Exception as error:  # serdes of users raise anything
            return f"<0x{data.hex()}: {error}>"
        is_text = isinstance(value, str) and self is not LineType.JSON
        return value if is_text else json_text(value)

    def data_of(self, data: bytes | None) -> Any:
        """Return bytes as JSON has them; those that cannot be decoded in hexadecimal."""
        if data is None:
            return None
        try:
            return self.decode(data)
        except Exception as error:
            return {"undecodable": data.hex(), "reason": str(error)}

    def decode(self, data: bytes) -> Any:
        """Return bytes as a value that JSON has."""
        raise NotImplementedError


class LineType(LineFormat, StrEnum):
    """The type of a key or value."""

    STRING = "string"
    JSON = "json"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BYTES = "bytes"
    HEX = "hex"

    def serde(self) -> Serde[Any]:
        """Return the serde of this type."""
        makers: dict[LineType, Callable[[], Serde[Any]]] = {
            LineType.STRING: Serdes.string,
            LineType.JSON: Serdes.json,
            LineType.INT: Serdes.integer,
            LineType.LONG: Serdes.long,
            LineType.DOUBLE: Serdes.double,
            LineType.BYTES: Serdes.bytes,
            LineType.HEX: Serdes.bytes,
        }
        return makers[self]()

    def value_from(self, text: str) -> Any:
        """Parse a text.

        Raises:
            LineValueError: It is not of this type.
        """
        try:
            value = self._read(text)
            self.serde().serialize(value)
        except (ValueError, TypeError, binascii.Error) as error:
            msg = f"{text!r} is no {self.value} ({error})."
            raise LineValueError(msg) from None
        return value

    def _read(self, text: str) -> Any:
        match self:
            case LineType.STRING:
                return text
            case LineType.JSON:
                return json.loads(text)
            case LineType.DOUBLE:
                return float(text)
            case LineType.BYTES:
                return base64.b64decode(text, validate=True)
            case LineType.HEX:
                return bytes.fromhex(text)
            case _:
                return int(text)

    def decode(self, data: bytes) -> Any:
        if self is LineType.BYTES:
            return base64.b64encode(data).decode()
        return data.hex() if self is LineType.HEX else self.serde().deserialize(data)


@dataclass(frozen=True)
class SerdeFormat(LineFormat):
    """Prints bytes with a serde of an application."""

    serde: Serde[Any]

    def decode(self, data: bytes) -> Any:
        value = self.serde.deserialize(data)
        return msgspec.to_builtins(value, str_keys=True, builtin_types=[Decimal], enc_hook=_plain)


def json_text(value: Any) -> str:
    """Return a value as JSON in one line; a Decimal is a number with all its digits."""
    if isinstance(value, float):
        return json.dumps(value)  # also NaN, for which JSON has no number
    return msgspec.json.format(_JSON.encode(value), indent=0).decode()


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # a pydantic model
    return str(value) if dump is None else dump(mode="json", by_alias=True)
