"""Secrets: the settings that hold them, and how they are masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

V = TypeVar("V")

MASK = "****"

# Over-masking is harmless: an endpoint with "token" in its name is hidden too.
_SECRET_NAME = re.compile(
    r"password|passwd|secret|token|credential|jaas|private|\.pem\b|ssl\.keystore\.key"
    r"|(?:access|account|api)[._-]?key|auth[._]user[._]info|oauthbearer[._]config",
    re.IGNORECASE,
)
# The name of a file is no secret, and a command that repeats it must work.
_FILE_NAME = re.compile(r"\.(?:file|location)$")
_SECRET_VALUE = re.compile(
    r"(?:password|passwd|secret|token|credential)\w*['\"]?\s*[=:]|://[^/@\s]*:[^/@\s]*@",
    re.IGNORECASE,
)


def is_secret(name: str, value: object = None) -> bool:
    """Return whether a setting must not be printed, because of its name or its text."""
    dotted = name.replace("_", ".")
    if _SECRET_NAME.search(dotted) and not _FILE_NAME.search(dotted):
        return True
    return isinstance(value, str) and _SECRET_VALUE.search(value) is not None


def masked_repr(name: str, value: object) -> str:
    """Return the value as Python code, or a mask instead of a secret."""
    return repr(MASK) if is_secret(name, value) else repr(value)


class MaskedSettings(Mapping[str, V]):
    """Values by the name of a setting. Immutable; secrets do not print."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, V] | Iterable[tuple[str, V]] = ()) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> V:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        items = (f"{name!r}: {masked_repr(name, value)}" for name, value in self._values.items())
        return "{" + ", ".join(items) + "}"

    def laid_over(self, other: Mapping[str, V]) -> MaskedSettings[V]:
        """Return the settings of both; where both have a name, these win."""
        return MaskedSettings({**other, **self._values})
