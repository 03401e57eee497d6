"""Deduces the serde of a type, and the types from the functions of a program."""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from headrace.errors import TopologyError
from headrace.serdes.base import Serde, SerdeLike, T, type_name
from headrace.serdes.builtin_returns import builtin_return
from headrace.serdes.json_serde import JsonSerde
from headrace.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    LongSerde,
    StringSerde,
    UuidSerde,
    VoidSerde,
)
from headrace.serdes.protobuf_serde import ProtobufSerde, is_message_class
from headrace.windows.window import Windowed

_SERDES: Mapping[object, Serde[Any]] = {
    str: StringSerde(),
    bytes: BytesSerde(),
    int: LongSerde(),
    float: DoubleSerde(),
    bool: BooleanSerde(),
    UUID: UuidSerde(),
    NoneType: VoidSerde(),
}

# Bare collections say nothing about their items, the others nothing at all.
_SAY_NOTHING = (list, dict, set, frozenset, tuple, object, Any, typing.NoReturn, typing.Never)

_ITERABLES = {
    list,
    set,
    frozenset,
    collections.abc.Collection,
    collections.abc.Generator,
    collections.abc.Iterable,
    collections.abc.Iterator,
    collections.abc.Sequence,
    collections.abc.Set,
}

Deduced: TypeAlias = Serde[Any] | None
"""The serde that a program implies, or None if it does not say."""


def serde_for(given: SerdeLike[T]) -> Serde[T]:
    """Return the serde that `key=` or `value=` means: the one given, or that of the type given.

    ``str``, ``bytes``, ``int``, ``float``, ``bool``, ``UUID``, ``NoneType`` and Protobuf messages
    have serdes of their own; every other type is JSON. ``X | None`` means X.

    Raises:
        TopologyError: It is neither a serde nor a type that has one.
    """
    if _is_serde_class(given):
        name = type_name(given)
        msg = f"{name} is a serde class, but a serde is needed. Write `{name}(…)`."
        raise TopologyError(msg)
    if not isinstance(given, type) and isinstance(given, Serde):
        return given
    serde: Serde[T] = _serde_for_type(_resolved(given))
    return serde


def deduced_serde(annotation: Any) -> Deduced:
    """Return the serde of an annotation; None if it does not say enough, or has no serde."""
    type_ = _resolved(annotation)
    bare = type_ if get_args(type_) else get_origin(type_) or type_
    if any(bare is nothing for nothing in _SAY_NOTHING) or _is_serde_class(type_):
        return None
    try:
        return _serde_for_type(type_)
    except TopologyError:
        return None


def return_serde(function: Callable[..., Any]) -> Deduced:
    """Return the serde of what a function returns, if a class or an annotation says so."""
    return deduced_serde(_returned(function))


def pair_serdes(function: Callable[..., Any]) -> tuple[Deduced, Deduced]:
    """Return the serdes of the key and the value that a function returns as a pair."""
    return _serdes_of_pair(_returned(function))


def item_serde(function: Callable[..., Any]) -> Deduced:
    """Return the serde of the items of what a function returns."""
    return deduced_serde(_item(_returned(function)))


def item_pair_serdes(function: Callable[..., Any]) -> tuple[Deduced, Deduced]:
    """Return the serdes of key and value of the pairs in what a function returns."""
    return _serdes_of_pair(_item(_returned(function)))


def argument_serdes(class_: type, base: type) -> list[Deduced]:
    """Return the serdes of the type arguments that a class gives its generic base, in order."""
    return [deduced_serde(argument) for argument in _type_arguments(class_, base)]


def _type_arguments(class_: type, base: type) -> tuple[Any, ...]:
    for parent in vars(class_).get("__orig_bases__", class_.__bases__):
        origin, given = get_origin(parent) or parent, get_args(parent)
        if origin is base:
            return given or vars(base)["__parameters__"]
        if isinstance(origin, type) and issubclass(origin, base):
            named = dict(zip(getattr(origin, "__parameters__", ()), given, strict=False))
            return tuple(named.get(type_, type_) for type_ in _type_arguments(origin, base))
    return base.__parameters__  # type: ignore[attr-defined, no-any-return]  # it is generic


def _is_serde_class(type_: object) -> bool:
    class_ = get_origin(type_) or type_
    return isinstance(class_, type) and issubclass(class_, Serde)


def _serde_for_type(type_: Any) -> Serde[Any]:
    if not isinstance(type_, type) and get_origin(type_) is None:
        msg = f"{type_!r} is neither a type nor a serde. Give a type such as `str`, or a serde."
        raise TopologyError(msg)
    if isinstance(type_, type) and type_ in _SERDES:
        return _SERDES[type_]
    if is_message_class(type_):
        return ProtobufSerde(type_)
    if (get_origin(type_) or type_) is Windowed:
        msg = (
            "Windowed alone does not say which windows. "
            "Give `Serdes.time_windowed(…, size)` or `Serdes.session_windowed(…)`."
        )
        raise TopologyError(msg)
    return JsonSerde(type_)


def _resolved(annotation: Any) -> Any:
    """Return the type that an alias, a NewType, an ``X | None`` or an annotated primitive means."""
    if hasattr(annotation, "__supertype__"):
        return _resolved(annotation.__supertype__)
    # A `type X = …` of Python 3.12.
    if type(annotation).__name__ == "TypeAliasType":
        return _resolved(annotation.__value__)
    if get_origin(annotation) is Annotated and annotation.__origin__ in _SERDES:
        return annotation.__origin__
    if get_origin(annotation) in (Union, UnionType):
        rest = [part for part in get_args(annotation) if part is not NoneType]
        return _resolved(rest[0]) if len(rest) == 1 else annotation
    return annotation


def _returned(function: Callable[..., Any]) -> Any:
    """Return the type of what a function returns; Any if nothing says so."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type) or get_origin(function) is not None:
        return function
    known = builtin_return(function)
    if known is not Any:
        return known
    if not inspect.isroutine(function) and not hasattr(function, "__wrapped__"):
        function = type(function).__call__
    try:
        return _return_annotation(function)
    except Exception:  # The text of an annotation may raise any error.
        return Any


def _return_annotation(function: Callable[..., Any]) -> Any:
    """Return the annotation, with the names in it looked up where the function was written."""

    def annotated() -> None: ...

    annotation = getattr(function, "__annotations__", {}).get("return", Any)
    annotated.__annotations__ = {"return": annotation}
    written = inspect.unwrap(function)
    names = getattr(written, "__globals__", {})
    return get_type_hints(annotated, names, _closure(written), include_extras=True)["return"]


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the local names around a function that it uses."""
    function = getattr(function, "__func__", function)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    variables = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
        try:
            variables[name] = cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
    return variables


def _item(type_: Any) -> Any:
    """Return the type of the items of an iterable type; Any if it does not say."""
    type_ = _resolved(type_)
    origin, parts = get_origin(type_), get_args(type_)
    if origin in _ITERABLES and parts:
        return parts[0]
    if origin is tuple and len(parts) == 2 and parts[1] is Ellipsis:
        return parts[0]
    return Any


def _serdes_of_pair(type_: Any) -> tuple[Deduced, Deduced]:
    type_ = _resolved(type_)
    parts = get_args(type_)
    if get_origin(type_) is not tuple or len(parts) != 2 or parts[1] is Ellipsis:
        return None, None
    return deduced_serde(parts[0]), deduced_serde(parts[1])
