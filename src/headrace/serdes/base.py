"""The Serde protocol: how keys and values become bytes and come back."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import (
    Annotated,
    Any,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
    runtime_checkable,
)

T = TypeVar("T")

_OURS = "headrace.serdes."

_ENUM_OR_TAG = re.compile(r"\A(Invalid (?:enum )?value) .*?( - at `\$[^`]*`)?\Z", re.DOTALL)
_PYDANTIC_TAG = re.compile(r"\A(Input tag) .*( found using )", re.DOTALL)


@runtime_checkable
class Serde(Protocol[T]):
    """Turns values into bytes and back. Never sees None: None is Kafka's null.

    A serde may also have ``for_topic(topic, *, is_key) -> Serde``; it is called once for each topic
    that the serde is used on, and its answer is used there (schema registry subjects need this).

    Data that does not fit raises a TypeError or a ValueError; the engine adds topic and offset.
    Serdes are shipped to Spark's workers, and compare equal if they write and read the same.
    """

    def serialize(self, value: T, /) -> bytes:
        """Return the bytes of ``value``."""
        ...

    def deserialize(self, data: bytes, /) -> T:
        """Return the value that ``data`` holds."""
        ...


SerdeLike: TypeAlias = type[T] | Serde[T]
"""The argument of `key=` and `value=`: a type, or a serde."""


@dataclass(frozen=True)
class FunctionSerde(Serde[T]):
    """Bytes made and read by two functions; what `Serdes.of` returns."""

    to_bytes: Callable[[T], bytes]
    """Returns the bytes of a value."""
    from_bytes: Callable[[bytes], T]
    """Returns the value of such bytes."""

    def serialize(self, value: T, /) -> bytes:
        data = self.to_bytes(value)
        if type(data) is bytes:
            return data
        msg = (
            f"The function that serializes, {self.to_bytes!r}, must return bytes, "
            f"but returned {type(data).__name__}. Encode what it returns."
        )
        raise TypeError(msg)

    def deserialize(self, data: bytes, /) -> T:
        return self.from_bytes(data)


def serde_for_topic(serde: Serde[Any], topic: str, *, is_key: bool) -> Serde[Any]:
    """Return the serde to use on ``topic``: what ``for_topic`` answers, or the serde itself."""
    for_topic = getattr(serde, "for_topic", None)
    bound: Serde[Any] = serde if for_topic is None else for_topic(topic, is_key=is_key)
    return bound if type(bound).__module__.startswith(_OURS) else _CheckedSerde(bound)


class _CheckedSerde(Serde[T]):
    """A serde of the user that returns bytes or None.

    Anything else would fail when the batch is packed, where no handler can skip the record.
    """

    def __init__(self, serde: Serde[T]) -> None:
        self._serde = serde
        self.deserialize = serde.deserialize  # type: ignore[method-assign]  # saves a call

    def serialize(self, value: T, /) -> bytes:
        data: Any = self._serde.serialize(value)
        if isinstance(data, bytes):
            return data
        if isinstance(data, (bytearray, memoryview)):
            return bytes(data)
        if data is None:
            return data  # type: ignore[return-value]  # Kafka's null
        msg = (
            f"`serialize` of {type(self._serde).__name__} must return bytes, "
            f"but returned {type(data).__name__}. Encode what it returns."
        )
        raise TypeError(msg)

    def deserialize(self, data: bytes, /) -> T:
        return self._serde.deserialize(data)

    def __getattr__(self, name: str) -> Any:
        if name == "_serde":  # of an object that is being copied
            raise AttributeError(name)
        return getattr(self._serde, name)

    def __eq__(self, other: object) -> bool:
        return self._serde == (other._serde if isinstance(other, _CheckedSerde) else other)

    def __hash__(self) -> int:
        return hash(self._serde)


class WrongTypeError(TypeError):
    """A serde of Headrace got a value of a type that it does not write."""


def wrong_type(serde: object, expected: str, value: object) -> WrongTypeError:
    """Return the error of a serde that was given a value of a type it does not write."""
    got = type(value).__name__
    return WrongTypeError(
        f"{type(serde).__name__} writes {expected}, but got {got}. "
        f"Convert the value, or use a serde for {got}."
    )


def without_value(message: str) -> str:
    """Return the message of msgspec or pydantic with a mask for the data that it quotes.

    They quote the value of an enum, a literal or a tag; messages reach logs, which must not.
    """
    return _PYDANTIC_TAG.sub(r"\1 ****\2", _ENUM_OR_TAG.sub(r"\1 ****\2", message))


def type_name(type_: Any) -> str:
    """Return a type as a program spells it: ``list[Order]``, without the modules."""
    text = type_.__qualname__ if isinstance(type_, type) else str(type_)
    return re.sub(r"(?:\w+\.|<locals>\.)+(?=\w)", "", text)


def classes_of(type_: Any) -> tuple[type, ...]:
    """Return the classes whose instances may be values of a type, to check a value quickly."""
    origin = get_origin(type_)
    if origin is Annotated:
        return classes_of(get_args(type_)[0])
    if origin in (Union, UnionType):
        return tuple(class_ for part in get_args(type_) for class_ in classes_of(part))
    if is_typeddict(origin or type_):
        return (dict,)
    if type_ is float:
        return (float, int)
    class_ = origin or type_
    return (class_ if isinstance(class_, type) and class_ is not Any else object,)
