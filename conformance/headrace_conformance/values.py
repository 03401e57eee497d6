"""Values of the scenario language: JSON, with the types and the arithmetic of Java.

A long is an ``int``, a double a ``float``; 1 and 1.0 are different values, as ``Long`` and
``Double`` are. Integers wrap at 64 bits.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, NoReturn

from headrace import Windowed


class UserError(Exception):
    """Raised by ``fail`` and ``fail_if``: the exception of a user's function."""


class WrongTypeError(TypeError):
    """A function met a value of the wrong type, where Java throws ClassCastException."""


def refuse(value: Any, wanted: str) -> NoReturn:
    """Raise the error for a value that is not ``wanted``."""
    msg = f"{value!r} is a {type(value).__name__}, not a {wanted}"
    raise WrongTypeError(msg)


def as_text(value: Any) -> str:
    """Return ``value`` if it is text."""
    return value if isinstance(value, str) else refuse(value, "string")


def as_number(value: Any) -> int | float:
    """Return ``value`` if it is a long or a double."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(value, "number")
    return value


def as_list(value: Any) -> list[Any]:
    """Return ``value`` if it is a list."""
    return value if isinstance(value, list) else refuse(value, "list")


def as_object(value: Any) -> dict[str, Any]:
    """Return ``value`` if it is an object."""
    return value if isinstance(value, dict) else refuse(value, "object")


def as_windowed(value: Any) -> Windowed[Any]:
    """Return ``value`` if it is a windowed key."""
    return value if isinstance(value, Windowed) else refuse(value, "windowed key")


def wrapped(number: int | float) -> int | float:
    """Return an integer as a Java long holds it; doubles stay."""
    if isinstance(number, float):
        return number
    return (number + 2**63) % 2**64 - 2**63


def long_of(value: Any) -> int:
    """Return ``value`` as a long: text is parsed, a double loses its fraction."""
    if isinstance(value, str):
        return int(value)
    return int(as_number(value))


def double_of(value: Any) -> float:
    """Return ``value`` as a double: text is parsed."""
    if isinstance(value, str):
        return float(value)
    return float(as_number(value))


def compare(left: Any, right: Any) -> int:
    """Return a negative number, zero or a positive number, as ``compareTo`` does."""
    if isinstance(left, str):
        # Java compares UTF-16 units, not code points.
        a, b = left.encode("utf-16-be"), as_text(right).encode("utf-16-be")
        return (a > b) - (a < b)
    x, y = as_number(left), as_number(right)
    return (x > y) - (x < y)


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal; a long never equals a double, nor a boolean a number."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    return bool(left == right)


def text_of(value: Any) -> str:
    """Return ``value`` as it prints: text as it is, everything else as compact JSON."""
    return value if isinstance(value, str) else _json_text(json_of(value))


def _json_text(value: Any) -> str:
    if isinstance(value, dict):
        fields = (
            f"{json.dumps(name, ensure_ascii=False)}:{_json_text(value[name])}" for name in value
        )
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return double_text(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def double_text(number: float) -> str:
    """Return what ``Double.toString`` prints."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"


def json_of(value: Any) -> Any:
    """Return ``value`` as JSON shows it: a windowed key as an object, fields by name."""
    if isinstance(value, Windowed):
        window = value.window
        return {"key": json_of(value.key), "start": window.start, "end": window.end}
    if isinstance(value, dict):
        return {name: json_of(value[name]) for name in sorted(value)}
    return [json_of(item) for item in value] if isinstance(value, list) else value
