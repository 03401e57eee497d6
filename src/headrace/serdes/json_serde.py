"""JSON, of any shape or of one type."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Literal, TypeAlias, overload

import msgspec
from msgspec import inspect as shapes

from headrace.errors import TopologyError
from headrace.serdes.base import Serde, T, classes_of, type_name, without_value, wrong_type
from headrace.serdes.camel_case import camel_case_renamings

Rename: TypeAlias = Literal["camel"]
"""How fields are spelled in JSON: with ``"camel"``, ``location_id`` becomes ``locationId``."""


class JsonSerde(Serde[T]):
    """JSON, compact, and the same bytes for equal values, so that keys can be JSON too.

    Reads and writes what msgspec does (dataclasses, Structs, TypedDicts, NamedTuples, enums, dates,
    Decimals, collections of them), and pydantic models. A Decimal is a number with all its digits;
    without a type it is read as a float. NaN and infinity become null: JSON has no such numbers.

    Args:
        type: The type of the JSON; by default any.
        rename: ``"camel"`` spells the fields of dataclasses and TypedDicts in camelCase, nested
            ones included. Structs and pydantic models say that themselves.

    Raises:
        TopologyError: The type cannot be JSON, or has nothing to rename.
    """

    @overload
    def __init__(self: JsonSerde[Any], type: None = None, *, rename: None = None) -> None: ...
    @overload
    def __init__(self, type: builtins.type[T], *, rename: Rename | None = None) -> None: ...
    @overload
    def __init__(self: JsonSerde[Any], type: object, *, rename: Rename | None = None) -> None: ...
    def __init__(self, type: object = None, *, rename: Rename | None = None) -> None:  # noqa: A002
        self.type: Any = Any if type is None else type
        self.rename = rename
        self._accepts = classes_of(self.type)
        self._encode, self._decode = _codec(self.type, rename)

    def serialize(self, value: T, /) -> bytes:
        if not isinstance(value, self._accepts):
            raise wrong_type(self, type_name(self.type), value)
        try:
            return self._encode(value)
        except TypeError as error:
            msg = f"The {type(value).__name__} cannot be written as JSON: {error}."
            raise TypeError(msg) from None
        except (ValueError, RecursionError) as error:
            msg = f"The {type(value).__name__} cannot be written as JSON: {error}."
            raise ValueError(msg) from None

    def deserialize(self, data: bytes, /) -> T:
        try:
            value: T = self._decode(data)
        except msgspec.ValidationError as error:
            msg = f"The JSON does not fit {type_name(self.type)}: {without_value(str(error))}."
        except ValueError as error:
            msg = f"The data is not JSON: {error}. Read it with the serde that wrote it."
        except RecursionError:
            msg = "The JSON is nested too deeply to be read."
        else:
            return value
        raise ValueError(msg)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JsonSerde):
            return NotImplemented
        return bool(self.type == other.type) and self.rename == other.rename

    def __hash__(self) -> int:
        return hash((JsonSerde, self.rename))

    def __repr__(self) -> str:
        parts = [] if self.type is Any else [type_name(self.type)]
        parts += [] if self.rename is None else [f"rename={self.rename!r}"]
        return f"JsonSerde({', '.join(parts)})"

    # Encoders and decoders cannot be shipped to Spark's workers, so each worker creates its own.
    def __reduce__(self) -> tuple[object, ...]:
        return _json_serde, (self.type, self.rename)


def _json_serde(type_: object, rename: Rename | None) -> JsonSerde[Any]:
    return JsonSerde(type_, rename=rename)


_Codec: TypeAlias = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


def _codec(type_: Any, rename: Rename | None) -> _Codec:
    """Return the function that writes values of a type, and the one that reads them."""
    if rename is not None:
        return _camel_case_codec(type_, rename)
    if _is_model(type_):
        return _encode_model, _model_decoder(type_)
    _checked_shape(type_)
    return _encode, msgspec.json.Decoder(type_, dec_hook=_model_from_plain).decode


def _camel_case_codec(type_: Any, rename: Rename) -> _Codec:
    if rename != "camel":
        msg = f'`rename` is {rename!r}. It can only be "camel".'
        raise TopologyError(msg)
    shape = _checked_shape(type_)
    try:
        renamings = camel_case_renamings(shape)
    except ValueError as error:
        msg = f"The fields of {type_name(type_)} cannot be renamed: {error}."
        raise TopologyError(msg) from None
    if renamings is None:
        msg = (
            f"`rename` is for dataclasses and TypedDicts, and {type_name(type_)} has none. "
            'For a Struct write `class …(Struct, rename="camel")`, for a pydantic model '
            "`alias_generator=to_camel`."
        )
        raise TopologyError(msg)
    writing, reading = renamings
    decode = msgspec.json.Decoder(float_hook=_float_hook(shape)).decode

    def write(value: Any) -> bytes:
        return _encode(writing(_builtins(value)))

    def read(data: bytes) -> Any:
        plain = reading(decode(data))
        return msgspec.convert(plain, type_, str_keys=True, dec_hook=_model_from_plain)

    return write, read


def _checked_shape(type_: Any) -> shapes.Type:
    """Return what msgspec knows of a type.

    Raises:
        TopologyError: Some part of it cannot be JSON.
    """
    try:
        msgspec.json.Decoder(type_)
        shape = shapes.type_info(type_)
    except (TypeError, NameError, ValueError) as error:
        msg = f"{type_name(type_)} cannot be read from JSON: {error}."
        raise TopologyError(msg) from None
    for part in _parts(shape):
        if isinstance(part, shapes.CustomType) and not _is_known(part.cls):
            within = "" if part.cls is type_ else f" within {type_name(type_)}"
            msg = (
                f"{type_name(part.cls)}{within} cannot be JSON. Make it a dataclass, a Struct, "
                "a TypedDict or a pydantic model, or give a serde: `Serdes.of(…)`."
            )
            raise TopologyError(msg)
    return shape


def _parts(shape: shapes.Type) -> Iterator[shapes.Type]:
    """Yield a shape and all shapes within it, each once."""
    waiting, seen = [shape], set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        for name in part.__struct_fields__:
            value = getattr(part, name)
            for item in value if isinstance(value, tuple) else (value,):
                inner = item.type if isinstance(item, shapes.Field) else item
                waiting += [inner] if isinstance(inner, shapes.Type) else []


def _float_hook(shape: shapes.Type) -> Callable[[str], Any] | None:
    """Keep all digits of numbers that become Decimals."""
    kinds = {type(part) for part in _parts(shape)}
    return Decimal if shapes.DecimalType in kinds and shapes.AnyType not in kinds else None


def _is_model(type_: Any) -> bool:
    # By its methods, so that pydantic is imported by those who use it only.
    return isinstance(type_, type) and hasattr(type_, "model_validate_json")


def _is_known(class_: type) -> bool:
    return class_ is object or _is_model(class_)


def _encode_model(value: Any) -> bytes:
    text: str = value.model_dump_json(by_alias=True)
    return text.encode()


def _plain(value: Any) -> Any:
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    msg = f"objects of type {type_name(type(value))} are not supported"
    raise TypeError(msg)


def _model_from_plain(type_: Any, value: Any) -> Any:
    if type_ is object:
        return value
    try:
        return type_.model_validate(value)
    except ValueError as error:
        raise ValueError(_problems(error)) from None  # msgspec adds where the model is.


def _model_decoder(type_: Any) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        try:
            return type_.model_validate_json(data)
        except ValueError as error:
            raise msgspec.ValidationError(_problems(error)) from None

    return decode


def _problems(error: ValueError) -> str:
    """Return what pydantic found, without the data and the links that its own text holds."""
    errors = getattr(error, "errors", list[dict[str, Any]])
    problems = [
        f"{without_value(part['msg'])} - at `{'.'.join(map(str, part['loc']))}`"
        for part in errors()
    ]
    return "; ".join(problems) or str(error)


_ENCODER = msgspec.json.Encoder(order="deterministic", enc_hook=_plain, decimal_format="number")


def _encode(value: Any) -> bytes:
    try:
        data = _ENCODER.encode(value)
    except TypeError:
        # The encoder sorts keys only if all are text: other keys become text first.
        data = _ENCODER.encode(_builtins(value))
    if b"NaN" in data or b"Infinity" in data:  # in text, or of a Decimal
        return _ENCODER.encode(_finite(_builtins(value)))
    return data


def _builtins(value: Any) -> Any:
    """Return a value as dicts, lists, text and numbers."""
    return msgspec.to_builtins(value, str_keys=True, builtin_types=(Decimal,), enc_hook=_plain)


def _finite(value: Any) -> Any:
    """Return a builtin value with null for Decimals that are no numbers."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, Decimal) and not value.is_finite() else value
