"""The names that steps, stores and internal topics may have."""

from __future__ import annotations

import re

from headrace.errors import TopologyError

_MAX_LENGTH = 249
_LEGAL = re.compile(r"[A-Za-z0-9._-]+")


def checked_name(name: str, *, what: str) -> str:
    """Return ``name`` if Kafka would accept it.

    The error says ``what`` it names: ``"step"``, ``"store"``.

    Raises:
        TopologyError: The name is empty, too long, a path, or has other characters.
    """
    if not isinstance(name, str):
        problem = f"is {type(name).__name__}, not text"
    elif not name:
        problem = "is empty"
    elif name in {".", ".."}:
        problem = "would be a path"
    elif len(name) > _MAX_LENGTH:
        problem = f"has {len(name)} characters"
    elif not _LEGAL.fullmatch(name):
        problem = "has other characters"
    else:
        return name
    msg = (
        f"The name {name!r} of a {what} {problem}. "
        f"Use 1 to {_MAX_LENGTH} letters, digits, '.', '_' or '-'."
    )
    raise TopologyError(msg)
