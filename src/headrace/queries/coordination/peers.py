"""The interface to the other instances of an application."""

from __future__ import annotations

from typing import Protocol

from headrace.errors import QueryError
from headrace.queries.coordination.local_reads import (
    ChangesAnswer,
    LocalAnswer,
    LocalChanges,
    LocalRead,
)
from headrace.queries.members import MemberStatus


class PeerUnreachableError(QueryError):
    """An instance did not answer: its process is gone, or the network."""


class PeerTransport(Protocol):
    """Asks one instance. Each method raises `PeerUnreachableError` if it does not answer."""

    async def read(self, member: str, request: LocalRead, /) -> LocalAnswer:
        """Return what an instance has of its shards."""
        ...

    async def changes(self, member: str, request: LocalChanges, /) -> ChangesAnswer:
        """Return what the next snapshot of an instance has changed."""
        ...

    async def status(self, member: str, /) -> MemberStatus:
        """Return what an instance says about its copy."""
        ...
