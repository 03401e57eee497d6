"""Refuses what fastavro would quietly change: 1.5 written as a long becomes 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[Any], None]
"""Raises a ValueError if a value would be changed by writing it."""


def avro_check(schema: Any) -> Check:
    """Return the check of a schema that fastavro has parsed."""
    return _Checks().of(schema, "the value") or _accept


def _accept(_: Any) -> None:
    """Nothing in the schema needs a check."""


class _Checks:
    """Makes the check of a schema out of those of its parts; None where none is needed."""

    def __init__(self) -> None:
        self._named: dict[str, Check] = {}

    def of(self, schema: Any, path: str) -> Check | None:
        if isinstance(schema, list):
            return None  # fastavro checks the members of a union itself, to choose one.
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "int" | "long":
                return _whole_number(path, bits=32 if kind == "int" else 64)
            case "boolean":
                return _boolean(path)
            case "record" | "error":
                return self._record(schema, path)
            case "array":
                return _each(self.of(schema["items"], f"an item of {path}"), list)
            case "map":
                return _each(self.of(schema["values"], f"a value of {path}"), dict.values)
            case _:
                return self._named.get(kind)

    def _record(self, schema: dict[str, Any], path: str) -> Check:
        checks: dict[str, Check] = {}

        def check(value: Any) -> None:
            if isinstance(value, dict):
                for name, check_field in checks.items():
                    if name in value:
                        check_field(value[name])

        # Known before its fields are, because a record may contain itself.
        self._named[schema["name"]] = check
        for field in schema["fields"]:
            check_field = self.of(field["type"], f"`{field['name']}`")
            if check_field is not None:
                checks[field["name"]] = check_field
        return check


def _whole_number(path: str, *, bits: int) -> Check:
    limit = 1 << (bits - 1)

    # Dates and times pass: fastavro turns them into numbers where the schema says so.
    def check(value: Any) -> None:
        if isinstance(value, bool | float):
            msg = f"{path} must be int, but is {type(value).__name__}"
            raise ValueError(msg)  # noqa: TRY004 - about the schema, not the program
        if isinstance(value, int) and not -limit <= value < limit:
            msg = f"{path} is {value}, which does not fit in {bits} bits"
            raise ValueError(msg)

    return check


def _boolean(path: str) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, bool):
            msg = f"{path} must be bool, but is {type(value).__name__}"
            raise ValueError(msg)  # noqa: TRY004 - about the schema, not the program

    return check


def _each(check: Check | None, items: Callable[[Any], Any]) -> Check | None:
    if check is None:
        return None

    def check_each(value: Any) -> None:
        for item in items(value):
            check(item)

    return check_each
