"""Finds the serialised keys that an SQL comparison can match.

A comparison only narrows a scan: SQLite checks each row again, so a range may be too wide, but
never too narrow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.queries.sql.columns import is_json_text
from headrace.queries.tables.sql_values import SqlValue
from headrace.serdes.base import Serde
from headrace.serdes.primitives import (
    BytesSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UuidSerde,
)


class KeyRange(NamedTuple):
    """Serialised keys between two, both included; None leaves that end open."""

    start: bytes | None = None
    end: bytes | None = None


class Comparison(NamedTuple):
    """A condition on one column: an operator (``= > >= < <=``) and the value on its right."""

    operator: str
    value: SqlValue


class SqlKeys:
    """The keys of one store, as SQL compares them."""

    def __init__(self, serde: Serde[Any]) -> None:
        self._serde = serde
        self._is_integer = isinstance(serde, ShortSerde | IntegerSerde | LongSerde)
        self._is_text = isinstance(serde, StringSerde | UuidSerde)
        self._is_json = is_json_text(serde)
        self._is_bytes = isinstance(serde, BytesSerde)

    @property
    def has_ranges(self) -> bool:
        """Return whether the order of the serialised keys is that of SQL."""
        return self._is_integer or self._is_text or self._is_bytes

    def ranges(self, comparisons: list[Comparison]) -> list[KeyRange]:
        """Return the ranges of all keys that pass the comparisons, in SQL's order.

        An equal start and end mean one key; no range means no key.
        """
        if any(each.value is None for each in comparisons):
            return []  # nothing compares with NULL
        if self._is_integer:
            return self._integer_ranges(comparisons)
        return self._byte_ranges(comparisons)

    def _byte_ranges(self, comparisons: list[Comparison]) -> list[KeyRange]:
        start: bytes | None = None
        end: bytes | None = None
        for operator, value in comparisons:
            data = self._bytes(value)
            if data is None or (self._is_json and operator != "="):
                continue
            if operator in ("=", ">", ">="):
                start = data if start is None else max(start, data)
            if operator in ("=", "<", "<="):
                end = data if end is None else min(end, data)
        if start is not None and end is not None and start > end:
            return []
        return [KeyRange(start, end)]

    def _bytes(self, value: SqlValue) -> bytes | None:
        """Return the key that equals a value; None if the bytes do not show it."""
        if self._is_bytes:
            return value if isinstance(value, bytes) else None
        if not (self._is_text or self._is_json):
            return None
        # A number may equal several texts, such as '5' and '5.0', where a column is compared.
        return value.encode() if isinstance(value, str) else None

    def _integer_ranges(self, comparisons: list[Comparison]) -> list[KeyRange]:
        size = len(self._serde.serialize(0))
        first, last = -(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1
        for operator, value in comparisons:
            if not isinstance(value, int | float) or value != value:
                continue
            low, high = _whole_numbers(operator, value)
            first = first if low is None else max(first, low)
            last = last if high is None else min(last, high)
        # Serialised, negative numbers follow the others.
        parts = [(first, min(last, -1)), (max(first, 0), last)]
        return [
            KeyRange(self._serde.serialize(low), self._serde.serialize(high))
            for low, high in parts
            if low <= high
        ]


def _whole_numbers(operator: str, value: float) -> tuple[int | None, int | None]:
    """Return the first and the last whole number that pass a comparison."""
    if value in (float("inf"), float("-inf")):
        return None, None
    floor = int(value // 1)
    ceiling = floor if floor == value else floor + 1
    low = ceiling if operator in ("=", ">", ">=") else None
    high = floor if operator in ("=", "<", "<=") else None
    return low, high
