"""Settings that hold an object: it may be given itself, as its class, or as ``module:name``."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import NoneType
from typing import Any, cast
from uuid import UUID

from headrace.config.values import Value, refuse
from headrace.processors.handlers import handler_named
from headrace.serdes.base import Serde, SerdeLike
from headrace.serdes.deduce import serde_for
from headrace.serdes.primitives import FloatSerde, IntegerSerde, ShortSerde
from headrace.timestamps import (
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)

_TYPES = {type_.__name__: type_ for type_ in (str, bytes, int, float, bool, UUID)}
_KAFKA_SERDES: dict[str, type | Serde[Any]] = {
    "StringSerde": str,
    "BytesSerde": bytes,
    "ByteArraySerde": bytes,
    "ShortSerde": ShortSerde(),
    "IntegerSerde": IntegerSerde(),
    "LongSerde": int,
    "FloatSerde": FloatSerde(),
    "DoubleSerde": float,
    "BooleanSerde": bool,
    "UUIDSerde": UUID,
    "VoidSerde": NoneType,
}
_EXTRACTORS = {
    class_.__name__: class_
    for class_ in (
        FailOnInvalidTimestamp,
        LogAndSkipOnInvalidTimestamp,
        UsePartitionTimeOnInvalidTimestamp,
        WallclockTimestampExtractor,
    )
}


@dataclass(frozen=True)
class HandlerValue(Value):
    """The handler of records that fail."""

    def read(self, value: object, what: str) -> object:
        handler = _made(_imported(value, what), what)
        try:
            return handler_named(handler)
        except ValueError as error:
            refuse(f"`{what}`: {error}")

    def described(self) -> str:
        return "`fail`, `continue`, function or `module:name`"


@dataclass(frozen=True)
class SerdeValue(Value):
    """A serde, or the type of what is to be written."""

    def read(self, value: object, what: str) -> object:
        if isinstance(value, str) and ":" not in value:
            value = _named_serde(value, what)
        imported = _imported(value, what)
        if isinstance(imported, type) and issubclass(imported, Serde):
            imported = _made(imported, what)
        try:
            return serde_for(cast(SerdeLike[Any], imported))
        except Exception as error:
            refuse(f"`{what}` cannot be used as a serde. {error}")

    def described(self) -> str:
        return "type, serde or `module:name`"


@dataclass(frozen=True)
class ExtractorValue(Value):
    """The extractor of timestamps."""

    def read(self, value: object, what: str) -> object:
        if isinstance(value, str):
            value = _EXTRACTORS.get(value.rpartition(".")[2], value)
        extractor = _made(_imported(value, what), what)
        if not callable(extractor):
            names = ", ".join(_EXTRACTORS)
            refuse(
                f"`{what}` is {value!r}, which is not a timestamp extractor. "
                f"Use {names}, or a function f(record, partition_time)."
            )
        return extractor

    def described(self) -> str:
        return "extractor, class or `module:name`"


def object_from(value: object, what: str) -> object:
    """Return the object of a setting: itself, an instance of the class, or what the text names.

    Raises:
        ValueError: ``"module:name"`` cannot be imported, or the class needs arguments.
    """
    return _made(_imported(value, what), what)


def _named_serde(name: str, what: str) -> object:
    kafka_name = name.replace("$", ".").rpartition(".")[2]
    named = _TYPES.get(name) or _KAFKA_SERDES.get(kafka_name)
    if named is None:
        refuse(
            f"`{what}` is {name!r}, which names no serde. "
            f'Use one of {", ".join(_TYPES)}, or "module:name" of a type or a serde.'
        )
    return named


def _imported(value: object, what: str) -> object:
    """Return the object that ``module:name`` names, or the value itself if it names none."""
    if not isinstance(value, str) or ":" not in value:
        return value
    module_name, _, path = value.partition(":")
    try:
        imported: object = importlib.import_module(module_name)
        for name in path.split("."):
            imported = getattr(imported, name)
    except Exception as error:
        refuse(
            f"`{what}` is {value!r}, which cannot be imported "
            f"({type(error).__name__}: {error}). Use the name of a module, ':', and a name in it."
        )
    return imported


def _made(value: object, what: str) -> object:
    """Return an instance if the value is a class, else the value itself."""
    if not isinstance(value, type):
        return value
    try:
        return value()
    except Exception as error:
        refuse(
            f"`{what}` is the class {value.__name__}, which cannot be made without arguments "
            f"({type(error).__name__}: {error}). Give an instance of it."
        )
