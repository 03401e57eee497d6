"""The client of an application, for asyncio: the methods are those of `QueryClient`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from headrace.durations import Duration
from headrace.queries.client.bounds import After, Bound, PinnedBound
from headrace.queries.client.connecting import (
    Program,
    conversations_with,
    head_of,
    http_options,
    reply_of,
    request_options,
    unreachable,
)
from headrace.queries.client.conversations import Conversations
from headrace.queries.client.events import StoreChange, StoreReset
from headrace.queries.client.steps import (
    Conversation,
    Emit,
    NextPart,
    Open,
    Pause,
    Reply,
    Send,
    Step,
    T,
    Unreachable,
)
from headrace.queries.client.store_reads import StoreReads
from headrace.queries.client.watching import watch
from headrace.queries.tables.sql_values import SqlParameters, SqlResult
from headrace.queries.tokens import Token, parse_token


class _AsyncRunner:
    """Carries out the steps of conversations, with an asynchronous HTTP client."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def run(self, conversation: Conversation[T]) -> T:
        """Return the result of a conversation that emits nothing."""
        stream = _AsyncStream(self._http)
        result: Any = None
        try:
            while True:
                result = await self._perform(conversation.send(result), stream)
        except StopIteration as end:
            value: T = end.value
            return value

    async def iterate(self, conversation: Conversation[None]) -> AsyncGenerator[Any, None]:
        """Yield what a conversation emits."""
        stream = _AsyncStream(self._http)
        result: Any = None
        try:
            while True:
                try:
                    step = conversation.send(result)
                except StopIteration:
                    return
                if isinstance(step, Emit):
                    result = None
                    yield step.item
                else:
                    result = await self._perform(step, stream)
        finally:
            await stream.close()

    async def _perform(self, step: Step, stream: _AsyncStream) -> Any:
        match step:
            case Send(request):
                try:
                    return reply_of(await self._http.request(**request_options(request)))
                except httpx.TransportError as error:
                    return unreachable(error)
            case Open(request):
                return await stream.open(request_options(request))
            case NextPart():
                return await stream.next_part()
            case Pause(seconds):
                await asyncio.sleep(seconds)
        return None


class _AsyncStream:
    """The stream that a conversation has open."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._response: httpx.Response | None = None
        self._parts: AsyncIterator[bytes] | None = None

    async def open(self, options: dict[str, Any]) -> Reply | Unreachable:
        await self.close()
        try:
            response = await self._http.send(self._http.build_request(**options), stream=True)
            self._response = response
            if response.status_code >= 400:
                await response.aread()
                return reply_of(response)
        except httpx.TransportError as error:
            return unreachable(error)
        self._parts = response.aiter_bytes()
        return head_of(response)

    async def next_part(self) -> bytes | None:
        assert self._parts is not None, "the stream is open"
        try:
            return await anext(self._parts, None)
        except httpx.TransportError:
            return None

    async def close(self) -> None:
        if self._response is not None:
            await self._response.aclose()


class AsyncRemoteStore(StoreReads[Awaitable[Any], AsyncIterator[Any]]):
    """A store of the whole application."""


class AsyncSnapshotReads:
    """Reads of several stores, within one bound."""

    def __init__(self, runner: _AsyncRunner, conversations: Conversations, bound: Bound) -> None:
        self._runner = runner
        self._conversations = conversations
        self._bound = bound

    def store(self, name: str, *, timestamped: bool = False) -> AsyncRemoteStore:
        """Return a store of the whole application.

        Args:
            name: The store.
            timestamped: Whether values are `ValueAndTimestamp`; the store must keep timestamps.
        """
        run, iterate = self._runner.run, self._runner.iterate
        return AsyncRemoteStore(
            run, iterate, self._conversations, self._bound, name, timestamped=timestamped
        )

    async def sql(self, text: str, params: SqlParameters = None) -> SqlResult:
        """Return the rows of one ``SELECT``, in which each store is a table."""
        return await self._runner.run(self._conversations.sql(self._bound, text, params))

    async def to_arrow(self, store: str) -> Any:
        """Return all rows of a store as a ``pyarrow.Table``, with a column for each field."""
        return await self._runner.run(self._conversations.arrow(self._bound, store))


class AsyncSnapshotView(AsyncSnapshotReads):
    """Several reads at one snapshot; the first answer chooses it."""

    _bound: PinnedBound

    @property
    def token(self) -> Token | None:
        """The snapshot; None: there was no read yet."""
        return self._bound.token

    async def __aenter__(self) -> AsyncSnapshotView:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: the instances forget the snapshot by themselves."""


class AsyncQueryClient(AsyncSnapshotReads):
    """Asks the instances of an application, and gets answers for all its shards.

    Its methods and arguments are those of `QueryClient`: reads are awaited, rows and changes come
    from ``async for``.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        token: str | None = None,
        ca: Path | str | None = None,
        program: Program | None = None,
        decimals: bool = False,
        timeout: Duration = "30s",
        http: httpx.AsyncClient | None = None,
    ) -> None:
        conversations = conversations_with(server, token, timeout, program, decimals=decimals)
        used = httpx.AsyncClient(**http_options(ca)) if http is None else http
        self._own_http = used if http is None else None
        super().__init__(_AsyncRunner(used), conversations, conversations.bound)

    @property
    def last_token(self) -> Token | None:
        """The newest snapshot that an answer had; later answers are of it or newer."""
        return self._conversations.bound.last

    def snapshot(
        self, at: Token | str | None = None, after: After | None = None
    ) -> AsyncSnapshotView:
        """Return reads that are all of one snapshot."""
        token = parse_token(at) if isinstance(at, str) else at
        bound = PinnedBound(self._conversations.bound, token, after)
        return AsyncSnapshotView(self._runner, self._conversations, bound)

    def watch(
        self, store: str, *, key: Any = None, prefix: Any = None, since: Token | str | None = None
    ) -> AsyncIterator[StoreChange | StoreReset]:
        """Yield the changes of a store, snapshot by snapshot, until the caller stops."""
        return self._runner.iterate(
            watch(self._conversations, store, key=key, prefix=prefix, since=since)
        )

    async def metadata(self, store: str | None = None, key: Any = None) -> list[dict[str, Any]]:
        """Return for each shard the instance that answers first, and its standbys."""
        return await self._runner.run(self._conversations.metadata(store, key))

    async def stores(self, *, counted: bool = True) -> list[dict[str, Any]]:
        """Return the queryable stores: names, kinds, types, entries, snapshot, position and lag.

        Args:
            counted: Whether the entries are counted, which reads them.
        """
        params = {} if counted else {"counted": "false"}
        return await self._runner.run(self._conversations.documents("/v1/stores", params))

    async def snapshots(self) -> list[dict[str, Any]]:
        """Return the snapshots that the instance keeps, the newest first."""
        return await self._runner.run(self._conversations.documents("/v1/snapshots", {}))

    async def lag(self) -> list[dict[str, Any]]:
        """Return how far the application is behind in its inputs, and copies behind it."""
        return await self._runner.run(self._conversations.documents("/v1/lag", {}))

    async def errors(self) -> list[dict[str, Any]]:
        """Return the kinds of errors of the application's run, the most frequent first."""
        return await self._runner.run(self._conversations.documents("/v1/errors", {}))

    async def close(self) -> None:
        """Close the connections."""
        if self._own_http is not None:
            await self._own_http.aclose()

    async def __aenter__(self) -> AsyncQueryClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
