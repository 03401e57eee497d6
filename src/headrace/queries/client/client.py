"""The client of an application, for programs that wait for their answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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


class _Runner:
    """Carries out the steps of conversations, with a blocking HTTP client."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def run(self, conversation: Conversation[T]) -> T:
        """Return the result of a conversation that emits nothing."""
        stream = _Stream(self._http)
        result: Any = None
        try:
            while True:
                result = self._perform(conversation.send(result), stream)
        except StopIteration as end:
            value: T = end.value
            return value

    def iterate(self, conversation: Conversation[None]) -> Iterator[Any]:
        """Yield what a conversation emits."""
        stream = _Stream(self._http)
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
                    result = self._perform(step, stream)
        finally:
            stream.close()

    def _perform(self, step: Step, stream: _Stream) -> Any:
        match step:
            case Send(request):
                try:
                    return reply_of(self._http.request(**request_options(request)))
                except httpx.TransportError as error:
                    return unreachable(error)
            case Open(request):
                return stream.open(request_options(request))
            case NextPart():
                return stream.next_part()
            case Pause(seconds):
                time.sleep(seconds)
        return None


class _Stream:
    """The stream that a conversation has open."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._response: httpx.Response | None = None
        self._parts: Iterator[bytes] = iter(())

    def open(self, options: dict[str, Any]) -> Reply | Unreachable:
        self.close()
        try:
            response = self._http.send(self._http.build_request(**options), stream=True)
            self._response = response
            if response.status_code >= 400:
                response.read()
                return reply_of(response)
        except httpx.TransportError as error:
            return unreachable(error)
        self._parts = response.iter_bytes()
        return head_of(response)

    def next_part(self) -> bytes | None:
        try:
            return next(self._parts, None)
        except httpx.TransportError:
            return None

    def close(self) -> None:
        if self._response is not None:
            self._response.close()


class RemoteStore(StoreReads[Any, Iterator[Any]]):
    """A store of the whole application."""


class SnapshotReads:
    """Reads of several stores, within one bound."""

    def __init__(self, runner: _Runner, conversations: Conversations, bound: Bound) -> None:
        self._runner = runner
        self._conversations = conversations
        self._bound = bound

    def store(self, name: str, *, timestamped: bool = False) -> RemoteStore:
        """Return a store of the whole application.

        Args:
            name: The store.
            timestamped: Whether values are `ValueAndTimestamp`; the store must keep timestamps.
        """
        run, iterate = self._runner.run, self._runner.iterate
        return RemoteStore(
            run, iterate, self._conversations, self._bound, name, timestamped=timestamped
        )

    def sql(self, text: str, params: SqlParameters = None) -> SqlResult:
        """Return the rows of one ``SELECT``, in which each store is a table.

        Args:
            text: The statement.
            params: The values of ``?``, in their order, or of ``:name``, by name.
        """
        return self._runner.run(self._conversations.sql(self._bound, text, params))

    def to_arrow(self, store: str) -> Any:
        """Return all rows of a store as a ``pyarrow.Table``, with a column for each field."""
        return self._runner.run(self._conversations.arrow(self._bound, store))


class SnapshotView(SnapshotReads):
    """Several reads at one snapshot; the first answer chooses it."""

    _bound: PinnedBound

    @property
    def token(self) -> Token | None:
        """The snapshot; None: there was no read yet."""
        return self._bound.token

    def __enter__(self) -> SnapshotView:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the instances forget the snapshot by themselves."""


class QueryClient(SnapshotReads):
    """Asks the instances of an application, and gets answers for all its shards.

    No answer is older than the one before. A call waits for instances that are not ready, up to
    ``timeout``. Every refusal is a `QueryProblemError`.

    Args:
        server: The address of an instance, ``host:port`` or a URL; or several: if one does not
            answer, the next is asked.
        token: The token that the instances want.
        ca: A file with the certificate authority of the instances, for ``https``.
        program: The application (`KafkaStreams`) or its topology, for typed keys and values; left
            out, they are plain JSON.
        decimals: Whether the numbers of plain JSON that have a fraction are Decimals, with all
            their digits.
        timeout: For how long a call tries.
        http: The HTTP client to use, such as one with an own certificate; it is not closed.
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
        http: httpx.Client | None = None,
    ) -> None:
        conversations = conversations_with(server, token, timeout, program, decimals=decimals)
        used = httpx.Client(**http_options(ca)) if http is None else http
        self._own_http = used if http is None else None
        super().__init__(_Runner(used), conversations, conversations.bound)

    @property
    def last_token(self) -> Token | None:
        """The newest snapshot that an answer had; later answers are of it or newer."""
        return self._conversations.bound.last

    def snapshot(self, at: Token | str | None = None, after: After | None = None) -> SnapshotView:
        """Return reads that are all of one snapshot.

        Args:
            at: The snapshot; None: the newest when the first read comes.
            after: Records that must be reflected, such as those that were just sent.
        """
        token = parse_token(at) if isinstance(at, str) else at
        bound = PinnedBound(self._conversations.bound, token, after)
        return SnapshotView(self._runner, self._conversations, bound)

    def watch(
        self, store: str, *, key: Any = None, prefix: Any = None, since: Token | str | None = None
    ) -> Iterator[StoreChange | StoreReset]:
        """Yield the changes of a store, snapshot by snapshot, until the caller stops.

        A broken stream is opened again behind the last change. Where changes in between are not
        known, a `StoreReset` comes first: read the store at its snapshot.

        Args:
            store: The name of the store.
            key: Only the changes of this key.
            prefix: Only the changes of keys that begin so.
            since: The snapshot, or the ``event_id`` of a change, behind which the changes begin;
                None: now.
        """
        return self._runner.iterate(
            watch(self._conversations, store, key=key, prefix=prefix, since=since)
        )

    def metadata(self, store: str | None = None, key: Any = None) -> list[dict[str, Any]]:
        """Return for each shard the instance that answers first, and its standbys.

        Args:
            store: Only the shards of this store.
            key: Only the shard of this key.
        """
        return self._runner.run(self._conversations.metadata(store, key))

    def stores(self, *, counted: bool = True) -> list[dict[str, Any]]:
        """Return the queryable stores: names, kinds, types, entries, snapshot, position and lag.

        Args:
            counted: Whether the entries are counted, which reads them.
        """
        params = {} if counted else {"counted": "false"}
        return self._runner.run(self._conversations.documents("/v1/stores", params))

    def snapshots(self) -> list[dict[str, Any]]:
        """Return the snapshots that the instance keeps, the newest first."""
        return self._runner.run(self._conversations.documents("/v1/snapshots", {}))

    def lag(self) -> list[dict[str, Any]]:
        """Return how far the application is behind in its inputs, and copies behind it."""
        return self._runner.run(self._conversations.documents("/v1/lag", {}))

    def errors(self) -> list[dict[str, Any]]:
        """Return the kinds of errors of the application's run, the most frequent first."""
        return self._runner.run(self._conversations.documents("/v1/errors", {}))

    def close(self) -> None:
        """Close the connections."""
        if self._own_http is not None:
            self._own_http.close()

    def __enter__(self) -> QueryClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
