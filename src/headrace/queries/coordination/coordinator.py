"""The coordinator: answers for the whole application, each time from one snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

from headrace.queries.coordination.answers import (
    NEWEST,
    Answer,
    Answers,
    Bound,
    Change,
    EventId,
    Heartbeat,
    Page,
    Reset,
)
from headrace.queries.coordination.peers import PeerTransport
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.queries.members import MemberStatus
from headrace.queries.problems import QueryProblemError
from headrace.queries.reads import Operation, Row
from headrace.queries.tokens import Token
from headrace.runtime.snapshots import SnapshotRecord


class QueriedInstance(Protocol):
    """The instance in whose process a coordinator runs."""

    name: str | None
    snapshots: KeptSnapshots
    catalog: Any

    def newest_record(self) -> SnapshotRecord | None: ...
    def problem(self) -> QueryProblemError | None: ...
    def shard_problem(self, shard: Shard, /) -> QueryProblemError | None: ...
    def is_shard_ready(self, shard: Shard, /) -> bool: ...
    def status(self) -> MemberStatus: ...
    def members(self) -> Mapping[str, MemberStatus]: ...
    def placement(self) -> Mapping[Shard, tuple[str, ...]]: ...
    def note_status(self, status: MemberStatus, /) -> None: ...
    def add_listener(self, callback: Callable[[], None], /) -> Callable[[], None]: ...


class Coordinator:
    """Answers reads of all shards, wherever they are. Every refusal is a `QueryProblemError`.

    Args:
        instance: The instance of this process.
        transport: How to ask the others.
    """

    def __init__(self, instance: QueriedInstance, transport: PeerTransport) -> None:
        self._instance = instance
        self._transport = transport

    def newest_local(
        self, store: str, key: bytes
    ) -> tuple[bytes | None, int | None, ShownSnapshot] | None:
        """Return value, timestamp and snapshot of a key if this instance has a ready copy of it.

        The value is None if the store does not have the key. None in place of all three: ask
        `read_key`.
        """
        raise NotImplementedError

    async def read_key(
        self, store: str, key: bytes, bound: Bound = NEWEST, operation: Operation | None = None
    ) -> Answer:
        """Return the rows of one key; by default its value, of a key-value store."""
        raise NotImplementedError

    async def read_many(
        self,
        reads: Sequence[tuple[str, Operation]],
        bound: Bound = NEWEST,
        *,
        limit: int = 1_000,
    ) -> Answers:
        """Return the rows of several reads, of store and operation, all of one snapshot.

        A read with more rows than the limit is refused.
        """
        raise NotImplementedError

    async def page(
        self,
        store: str,
        operation: Operation | None,
        bound: Bound = NEWEST,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of a read over all shards. With a cursor the operation may be None."""
        raise NotImplementedError

    async def rows(
        self, store: str, operation: Operation, bound: Bound = NEWEST
    ) -> tuple[Token, SnapshotRecord, AsyncIterator[Row]]:
        """Return the token, the record and all rows of a read over all shards."""
        raise NotImplementedError

    async def row_batches(
        self, store: str, operation: Operation, bound: Bound = NEWEST
    ) -> tuple[Token, SnapshotRecord, AsyncIterator[list[Row]]]:
        """Return the same as `rows`, with the rows in lists."""
        raise NotImplementedError

    async def pin(
        self, stores: Sequence[str], bound: Bound = NEWEST
    ) -> tuple[Token, SnapshotRecord]:
        """Return a snapshot that all shards of some stores have, and keep it for later reads."""
        raise NotImplementedError

    def watch(
        self,
        store: str,
        *,
        key: bytes | None = None,
        prefix: bytes | None = None,
        since: EventId | None = None,
    ) -> AsyncIterator[Change | Reset | Heartbeat]:
        """Yield the changes of a store, snapshot by snapshot, in the order of their bytes."""
        raise NotImplementedError
