"""The values that go into SQL and come out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

SqlValue: TypeAlias = int | float | str | bytes | None
SqlParameters: TypeAlias = Sequence[SqlValue] | Mapping[str, SqlValue] | None
"""The values of ``?``, in their order, or of ``:name``, by name."""


class SqlResult(NamedTuple):
    """The rows of a statement."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """Each a text, a number, bytes or None for each column."""
