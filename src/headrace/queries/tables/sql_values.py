"""The values that go into SQL and come out of it."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

SqlValue: TypeAlias = int | float | str | bytes | None
SqlParameters: TypeAlias = Sequence[SqlValue] | Mapping[str, SqlValue] | None
"""The values of ``?``, in their order, or of ``:name``, by name."""

BYTES = "$bytes"
"""The one member of the JSON object that holds bytes, as base64url."""


class SqlResult(NamedTuple):
    """The rows of a statement."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """Each a text, a number, bytes or None for each column."""


def json_from_sql(value: Any) -> Any:
    """Return the JSON of an SQL value: bytes, which JSON does not have, become an object."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {BYTES: urlsafe_b64encode(value).rstrip(b"=").decode()}
    return value


def sql_from_json(value: Any) -> Any:
    """Return the SQL value of its JSON.

    Raises:
        ValueError: The bytes are not base64url.
    """
    if not isinstance(value, dict):
        return value
    text = value[BYTES].rstrip("=")
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    # The decoder ignores what is no base64.
    if urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        msg = f"{text!r} is not base64url"
        raise ValueError(msg)
    return data
