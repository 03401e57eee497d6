"""The keys of log records: what decides their partition."""

from __future__ import annotations

import logging
import platform
import struct
from collections.abc import Callable
from typing import Literal, TypeAlias, cast

from headrace.config.objects import object_from
from headrace.errors import ConfigError

LogKey: TypeAlias = Callable[[logging.LogRecord], str | bytes | None]
"""f(log_record): the key of its record, or None for no key."""

Keying: TypeAlias = Literal["none", "host", "thread", "logger", "context"] | LogKey | str
"""A name, a function, or ``"module:name"`` of one."""


def key_function(keying: Keying, context_name: str) -> LogKey:
    """Return the function that makes keys.

    Args:
        keying: What decides the key.
        context_name: The name that ``"context"`` hashes.

    Raises:
        ConfigError: ``keying`` is no name and no function.
    """
    named: dict[str, LogKey] = {
        "none": lambda _: None,
        "host": _constant(java_hash(platform.node())),
        "thread": lambda record: java_hash(record.threadName or ""),
        "logger": lambda record: record.name,
        "context": _constant(java_hash(context_name)),
    }
    if isinstance(keying, str) and keying in named:
        return named[keying]
    try:
        function = object_from(keying, "keying")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not callable(function):
        names = ", ".join(f'"{name}"' for name in named)
        msg = f'`keying` is {keying!r}. Use {names}, a function, or "module:name" of one.'
        raise ConfigError(msg)
    return cast(LogKey, function)


def java_hash(text: str) -> bytes:
    """Return the four bytes of Java's ``String.hashCode``, as logback's Kafka appender has them."""
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    return hashed.to_bytes(4, "big")


def _constant(key: bytes) -> LogKey:
    return lambda _: key
