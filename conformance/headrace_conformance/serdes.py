"""The serdes of the scenario language, as Headrace serdes, and JSON to and from their values.

A serde is known by its name: ``string``, ``long``, ``windowed:string:10``, ``session:string``. One
name gives one object, so that two streams of the same types agree on their serdes. Bytes are hex
text inside a topology too, so that functions can work on them.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from headrace import Serde, Serdes, Window, Windowed


def windowed_name(key: str, size: int) -> str:
    """Return the name of the serde for keys of windows of a fixed ``size`` in ms."""
    return f"windowed:{key}:{size}"


def session_name(key: str) -> str:
    """Return the name of the serde for keys of sessions."""
    return f"session:{key}"


@cache
def serde(name: str) -> Serde[Any]:
    """Return the serde called ``name``."""
    match name.partition(":"):
        case ("windowed", _, rest):
            inner, _, size = rest.rpartition(":")
            # Kafka takes a size of 0 here, and fails at the first record of such a window.
            return Serdes.time_windowed(serde(inner), max(1, int(size)))
        case ("session", _, inner):
            return Serdes.session_windowed(serde(inner))
        case ("string", *_):
            return Serdes.string()
        case ("long", *_):
            return Serdes.long()
        case ("double", *_):
            return Serdes.double()
        case ("bytes", *_):
            return Serdes.of(bytes.fromhex, bytes.hex)
        case ("json", *_):
            return Serdes.of(_json_bytes, json.loads)
        case ("picky", *_):
            return Serdes.of(_picky_bytes, _text)
    msg = f"There is no serde {name!r}."
    raise ValueError(msg)


def value_of(name: str, shown: Any) -> Any:
    """Return the value of serde ``name`` from its JSON ``shown``."""
    if shown is None:
        return None
    kind, _, inner = name.partition(":")
    if kind in ("windowed", "session"):
        if kind == "windowed":
            inner = inner.rpartition(":")[0]
        return Windowed(value_of(inner, shown["key"]), Window(shown["start"], shown["end"]))
    return float(shown) if kind == "double" else shown


def encoded(name: str, shown: Any) -> bytes | None:
    """Return the bytes that serde ``name`` writes for the JSON ``shown``."""
    value = value_of(name, shown)
    return None if value is None else serde(name).serialize(value)


def decoded(name: str, data: bytes | None) -> Any:
    """Return the value that serde ``name`` reads from ``data``."""
    return None if data is None else serde(name).deserialize(data)


def _json_bytes(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode()


def _picky_bytes(value: str) -> bytes:
    if value == "bad":
        raise ValueError("refused")
    return value.encode()


def _text(data: bytes) -> str:
    return data.decode()
