"""The steps of a client: a conversation says what to do next, and a runner does it.

Conversations hold all logic and do no I/O. Two runners, one with threads and one with asyncio,
carry the steps out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """One HTTP request."""

    method: str
    url: str
    params: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    timeout: float = 30.0
    """For how many seconds the answer may take."""


@dataclass(frozen=True)
class Reply:
    """The answer of an instance."""

    status: int
    headers: Mapping[str, str]
    """The headers, under their names in lower case."""
    body: bytes = b""


@dataclass(frozen=True)
class Unreachable:
    """No instance answers at an address."""

    reason: str


@dataclass(frozen=True)
class Send:
    """Send a request; the result is a `Reply` or `Unreachable`."""

    request: Request


@dataclass(frozen=True)
class Open:
    """Open a stream; the result is a `Reply`, with a body if it is a problem, or `Unreachable`."""

    request: Request


@dataclass(frozen=True)
class NextPart:
    """Read a part of the open stream; the result is its bytes, or None if the stream has ended."""


@dataclass(frozen=True)
class Pause:
    """Wait for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Emit:
    """Hand one item to the caller."""

    item: Any


Step: TypeAlias = Send | Open | NextPart | Pause | Emit
Conversation: TypeAlias = Generator[Step, Any, T]
"""Yields steps, receives their results, and returns a value."""
