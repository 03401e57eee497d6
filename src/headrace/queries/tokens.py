"""Tokens: which snapshot of which history an answer reflects."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

from headrace.errors import QueryError
from headrace.runtime.snapshots import SnapshotRecord

_HISTORY_DIGITS = 8
_FORM = re.compile(rf"([0-9a-f]{{{_HISTORY_DIGITS}}})\.(0|[1-9][0-9]{{0,18}})")


@dataclass(frozen=True)
class Token:
    """A snapshot of a history. Answers carry it, and clients send it back."""

    history: str
    """The first eight hexadecimal digits of the history."""
    snapshot: int

    def __str__(self) -> str:
        return f"{self.history}.{self.snapshot}"

    def is_at_least(self, other: Token) -> bool:
        """Return whether the snapshot is the other one or a later one of the same history.

        Raises:
            QueryError: The tokens are of two histories, between which there is no order.
        """
        if self.history != other.history:
            msg = f"Tokens {self} and {other} are of two histories: the application was reset."
            raise QueryError(msg)
        return self.snapshot >= other.snapshot


def token_of(record: SnapshotRecord) -> Token:
    """Return the token of a snapshot."""
    return Token(short_history(record.history), record.snapshot)


def parse_token(text: str) -> Token:
    """Return the token that a client has sent.

    Raises:
        QueryError: The text is no token.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        msg = f"{text!r} is no token. A token looks like '3f9a1c07.812'; copy it from an answer."
        raise QueryError(msg)
    return Token(form[1], int(form[2]))


@lru_cache(64)
def short_history(history: str) -> str:
    """Return the digits of a history that stand in its tokens."""
    digits = history.replace("-", "").lower()[:_HISTORY_DIGITS]
    if re.fullmatch(rf"[0-9a-f]{{{_HISTORY_DIGITS}}}", digits):
        return digits
    return hashlib.sha256(history.encode()).hexdigest()[:_HISTORY_DIGITS]
