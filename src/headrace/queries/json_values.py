"""Keys and values of a store as JSON, and keys from the text of a URL or from JSON."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias
from uuid import UUID

import msgspec

from headrace.queries.problems import ProblemCode, QueryProblemError
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
from headrace.serdes.protobuf_serde import ProtobufSerde
from headrace.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from headrace.windows.window import Window, Windowed

ToJson: TypeAlias = Callable[[bytes], bytes]
"""Returns the JSON of serialised data."""

HEX = "$hex"
"""The member that holds the bytes of data that its serde cannot read."""
ERROR = "$error"
"""The member that says why."""

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")
_INTEGERS = (ShortSerde, IntegerSerde, LongSerde)
_REALS = (FloatSerde, DoubleSerde)
_skip = msgspec.json.Decoder(msgspec.Raw).decode


def json_writer(serde: Serde[Any]) -> ToJson:
    """Return the function that makes JSON of the data of a serde.

    JSON passes through undecoded. Bytes become base64url. Data that the serde cannot read, or that
    JSON cannot hold, becomes an object with its bytes in hexadecimal and the error.
    """
    write = _writer(serde)

    def to_json(data: bytes) -> bytes:
        try:
            return write(data)
        except Exception as error:  # a serde of the user may raise any error
            return _encode({HEX: data.hex(), ERROR: f"{type(error).__name__}: {error}"})

    return to_json


def _writer(serde: Serde[Any]) -> ToJson:
    match serde:
        case JsonSerde():
            return _checked_json
        case BytesSerde():
            return lambda data: b'"%b"' % base64.urlsafe_b64encode(data)
        case TimeWindowedSerde() | SessionWindowedSerde():
            return _windowed_writer(serde)
    deserialize = serde.deserialize
    return lambda data: _encode(deserialize(data))


def _checked_json(data: bytes) -> bytes:
    """Return JSON as it is; msgspec checks its syntax without making objects."""
    _skip(data)
    if not data.isascii():
        data.decode()
    return data


def _windowed_writer(serde: TimeWindowedSerde[Any] | SessionWindowedSerde[Any]) -> ToJson:
    inner = json_writer(serde.inner)

    def write(data: bytes) -> bytes:
        window = serde.deserialize(data).window
        key = inner(serde.base_key(data))
        return b'{"key":%b,"start":%d,"end":%d}' % (key, window.start, window.end)

    return write


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):  # a pydantic model
        return value.model_dump(mode="json", by_alias=True)
    if hasattr(value, "DESCRIPTOR"):
        # Imported by those who use it only.
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(
            value, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    msg = f"JSON has no {type(value).__name__}"
    raise TypeError(msg)


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def key_from_text(serde: Serde[Any], text: str) -> bytes:
    """Return the serialised key that the text of a URL means.

    Raises:
        QueryProblemError: The text is no key of this type, or keys of this type have no text.
    """
    match serde:
        case StringSerde():
            value: Any = text
        case ShortSerde() | IntegerSerde() | LongSerde():
            value = _parsed(int, text, "a whole number", _WHOLE_NUMBER)
        case FloatSerde() | DoubleSerde():
            value = _parsed(float, text, "a number")
        case BooleanSerde():
            value = {"true": True, "false": False}.get(text)
            if value is None:
                _refuse(f"Key {text!r} is neither 'true' nor 'false'.")
        case UuidSerde():
            value = _parsed(UUID, text, "a UUID")
        case BytesSerde():
            value = _bytes_from_text(text)
        case _:
            _refuse(
                f"Keys of {type(serde).__name__} have no text. "
                "Send the key as JSON to `POST /v1/stores/{store}/get` or `POST /v1/query`."
            )
    return _serialized(serde, value)


def prefix_from_text(serde: Serde[Any], text: str) -> bytes:
    """Return the first bytes of all keys that begin with a text.

    Raises:
        QueryProblemError: Keys of this type have no prefixes.
    """
    if isinstance(serde, StringSerde | BytesSerde):
        return key_from_text(serde, text)
    msg = f"Keys of {type(serde).__name__} have no prefixes. Give `from` and `to`."
    raise QueryProblemError(ProblemCode.BAD_RANGE, msg)


def key_from_json(serde: Serde[Any], value: Any) -> bytes:
    """Return the serialised key of a JSON value.

    Raises:
        QueryProblemError: The value is no key of this type.
    """
    if isinstance(serde, UuidSerde | BytesSerde) and isinstance(value, str):
        return key_from_text(serde, value)
    try:
        if isinstance(serde, TimeWindowedSerde | SessionWindowedSerde):
            inner = serde.inner.deserialize(key_from_json(serde.inner, value["key"]))
            start = value["start"]
            if isinstance(serde, TimeWindowedSerde) and value.get("end") is None:
                value = Windowed(inner, Window(start, start + serde.size_ms))
            else:
                value = Windowed(inner, Window(start, value["end"]))
        elif isinstance(serde, JsonSerde):
            value = serde.deserialize(msgspec.json.encode(value))
        elif isinstance(serde, ProtobufSerde):
            # Imported by those who use it only.
            from google.protobuf.json_format import ParseDict

            value = ParseDict(value, serde.cls())
    except QueryProblemError:
        raise
    except Exception as error:  # the classes of the user may raise any error
        _refuse(f"The key does not fit {type(serde).__name__}: {error}.")
    if isinstance(serde, _INTEGERS) and not _is_number(value, int):
        _refuse("The key is no whole number.")
    if isinstance(serde, _REALS) and not _is_number(value, int | float):
        _refuse("The key is no number.")
    return _serialized(serde, value)


def _is_number(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _parsed(
    parse: Callable[[str], Any], text: str, what: str, form: re.Pattern[str] | None = None
) -> Any:
    if form is None or form.fullmatch(text):
        with suppress(ValueError):
            return parse(text)
    return _refuse(f"Key {text!r} is not {what}.")


def _bytes_from_text(text: str) -> bytes:
    """Return the bytes of base64, with either alphabet, with or without padding."""
    plain = text.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        _refuse(f"Key {text!r} is not base64url.")


def _serialized(serde: Serde[Any], value: Any) -> bytes:
    try:
        return serde.serialize(value)
    except Exception as error:  # a serde of the user may raise any error
        _refuse(f"The key does not fit the store: {error}")


def _refuse(detail: str) -> NoReturn:
    raise QueryProblemError(ProblemCode.BAD_KEY, detail) from None
