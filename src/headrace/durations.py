"""Lengths of time: what users write, and the milliseconds the engine counts in."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = timedelta | int | str
"""A length of time: a ``timedelta``, int milliseconds, or text such as ``"1h30m"``."""

MAX_MS = 2**63 - 1
"""The longest duration, and the latest timestamp: Kafka's are 64-bit integers."""

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_MILLISECOND = timedelta(milliseconds=1)
# 19 digits hold every 64-bit number.
_TEXT = re.compile(
    "(?P<sign>[+-]?)"
    + "".join(rf"(?:(?P<{unit}>[0-9]{{1,19}}(?:\.[0-9]{{1,19}})?){unit})?" for unit in _UNITS)
)
_HOW_TO_WRITE = (
    'Write text such as "250ms", "5s", "1h30m" or "7d", an int of milliseconds, or a timedelta.'
)


def duration_ms(value: Duration, *, what: str) -> int:
    """Return the milliseconds of a duration; those of ``"-5s"`` are negative.

    Args:
        value: A ``timedelta``, int milliseconds, or text: units d, h, m, s and ms, in this order.
        what: The parameter or setting that holds the value, as an error names it.

    Raises:
        ValueError: The value is no duration, or not a whole number of milliseconds, or does not
            fit in 64 bits.
    """
    if type(value) is int:
        length = value
    elif isinstance(value, str):
        length = _ms_from_text(value, what)
    elif isinstance(value, timedelta):
        length, rest = divmod(value, _MILLISECOND)
        if rest:
            raise ValueError(_not_whole(value, what))
    elif isinstance(value, int) and not isinstance(value, bool):
        length = int(value)
    else:
        msg = f"`{what}` is {value!r}, which is not a duration. {_HOW_TO_WRITE}"
        raise ValueError(msg)
    if not -MAX_MS <= length <= MAX_MS:
        msg = f"`{what}` is {value!r}, which does not fit in 64 bits. Use at most {MAX_MS} ms."
        raise ValueError(msg)
    return length


def duration_text(length_ms: int) -> str:
    """Return milliseconds as `duration_ms` reads them: 5_400_000 is ``"1h30m"``."""
    if length_ms == 0:
        return "0ms"
    parts = []
    rest = abs(length_ms)
    for unit, unit_ms in _UNITS.items():
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return ("-" if length_ms < 0 else "") + "".join(parts)


def _ms_from_text(text: str, what: str) -> int:
    match = _TEXT.fullmatch(text)
    numbers = {} if match is None else {u: n for u in _UNITS if (n := match[u]) is not None}
    if match is None or not numbers:
        msg = f"`{what}` is {text!r}, which is not a duration. {_HOW_TO_WRITE}"
        raise ValueError(msg)
    length = 0
    for unit, number in numbers.items():
        whole, _, decimals = number.partition(".")
        part, rest = divmod(int(whole + decimals) * _UNITS[unit], 10 ** len(decimals))
        if rest:
            raise ValueError(_not_whole(text, what))
        length += part
    return -length if match["sign"] == "-" else length


def _not_whole(value: Duration, what: str) -> str:
    return (
        f"`{what}` is {value!r}, which is not a whole number of milliseconds. "
        "Round it to milliseconds."
    )
