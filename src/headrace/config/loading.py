"""Settings in files: ``headrace.toml``, ``pyproject.toml`` and Java's ``.properties``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_PROPERTY = re.compile(r"((?:\\.|[^\\\s=:])*)\s*[=:]?\s*(.*)", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def settings_file(folder: Path) -> Path | None:
    """Return the file in ``folder`` that may hold settings; ``headrace.toml`` goes first."""
    files = (folder / "headrace.toml", folder / "pyproject.toml")
    return next((file for file in files if file.is_file()), None)


def settings_from_file(
    file: Path, variables: Mapping[str, str]
) -> tuple[dict[str, object], list[str]]:
    """Return the settings of a file under their dotted names, and the problems with it.

    The value of a variable replaces ``${env:NAME}`` in a text, and the content of another file
    replaces ``${file:PATH}``, so that secrets need not be written down here.
    """
    try:
        text = file.read_text(encoding="utf-8")
        written = dict(_properties(text) if file.suffix == ".properties" else _toml(file, text))
    except (OSError, ValueError) as error:
        return {}, [f"The settings in {str(file)!r} cannot be read ({error}). Correct the file."]
    settings: dict[str, object] = {}
    problems: list[str] = []
    for name, value in written.items():
        try:
            settings[name] = _resolved(value, file.parent, variables)
        except (OSError, ValueError) as error:
            problems.append(f"{file}: `{name}` refers to what cannot be read ({error}).")
    return settings, problems


def _toml(file: Path, text: str) -> Iterator[tuple[str, object]]:
    if file.suffix != ".toml":
        msg = "its name ends neither in .toml nor in .properties"
        raise ValueError(msg)
    document = tomllib.loads(text)
    if file.name == "pyproject.toml":
        document = _table(document, "tool")
    own = _table(document, "headrace")
    if file.name != "pyproject.toml":
        yield from _flattened(document)
    yield from _flattened(own)


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Remove a table from a document and return it; empty if there is none."""
    table = document.pop(name, {})
    if not isinstance(table, dict):
        msg = f"`{name}` is not a table"
        raise ValueError(msg)  # noqa: TRY004  # the file is wrong, not the program
    return table


def _flattened(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of a table under dotted names: unquoted, TOML reads the dots as tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _properties(text: str) -> Iterator[tuple[str, object]]:
    """Yield names and values as ``java.util.Properties`` reads them."""
    logical = ""
    for line in text.splitlines():
        stripped = line.lstrip()
        if not logical and (not stripped or stripped[0] in "#!"):
            continue
        logical += stripped
        # An odd number of backslashes at the end continues the line.
        if (len(logical) - len(logical.rstrip("\\"))) % 2:
            logical = logical[:-1]
            continue
        yield _property(logical)
        logical = ""
    if logical:
        yield _property(logical)


def _property(line: str) -> tuple[str, str]:
    # The pattern takes any line whole.
    name, value = _PROPERTY.findall(line)[0]
    return _ESCAPE.sub(_unescaped, name), _ESCAPE.sub(_unescaped, value)


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _CONTROLS.get(escaped, escaped)


def _resolved(value: object, folder: Path, variables: Mapping[str, str]) -> object:
    def referred(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "file":
            return (folder / name).read_text(encoding="utf-8").rstrip("\r\n")
        if name not in variables:
            msg = f"the variable {name} is not set"
            raise ValueError(msg)
        return variables[name]

    return _REFERENCE.sub(referred, value) if isinstance(value, str) else value
