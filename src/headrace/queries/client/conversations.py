"""The conversations of a client with the instances of an application."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from headrace.queries.catalog import Catalog
from headrace.queries.client.bounds import Bound, ClientBound
from headrace.queries.client.steps import (
    Conversation,
    Emit,
    Pause,
    Reply,
    Request,
    Send,
    Unreachable,
)
from headrace.queries.client.store_encodings import JsonEncoding, StoreEncoding, TypedEncoding
from headrace.queries.http_names import ARROW_TYPE, SNAPSHOT_HEADER
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.tables.sql_values import (
    SqlParameters,
    SqlResult,
    json_from_sql,
    sql_from_json,
)
from headrace.queries.tokens import parse_token
from headrace.state.store_types.base import LoggedStoreType
from headrace.state.store_types.lookup import logged_type_named

ReadRow: TypeAlias = Callable[[Mapping[str, Any], StoreEncoding], Any]
"""Returns what the caller gets for a row of a list."""

FIRST_PAGE, LATER_PAGES = 100, 1_000
NO_PATHS = ("", ".", "..")
"""Keys that no path of a URL can name."""
_RETRY_SECONDS = 0.1
"""How long a client waits after all addresses were tried in vain."""
_GRACE_SECONDS = 5.0
"""How much longer than its own wait an answer may take to arrive."""


class Conversations:
    """The state that both clients share: addresses, token, the last snapshot, the stores.

    Args:
        servers: The addresses of instances; the next one is asked if one does not answer.
        token: The token that the instances want.
        timeout: For how many seconds a call tries.
        catalog: The stores of the program, for typed keys and values; None: plain JSON.
        clock: The time in seconds.
    """

    def __init__(
        self,
        servers: Sequence[str],
        token: str | None,
        timeout: float,
        catalog: Catalog | None,
        plain: JsonEncoding,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers = [*map(_base_url, servers)]
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.timeout = timeout
        self.clock = clock
        self._catalog = catalog
        self._plain = plain
        self._kinds: dict[str, str] = {}
        self.bound = ClientBound()

    def encoding(self, store: str) -> StoreEncoding:
        """Return how keys and values of a store travel.

        Raises:
            QueryProblemError: The program has no such store.
        """
        return self._plain if self._catalog is None else TypedEncoding(self._catalog.store(store))

    def request(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Request:
        """Return a request to the instance that is asked now; with a body it is a POST."""
        own = {**self._headers, **(headers or {})}
        if body is not None:
            own["Content-Type"] = "application/json"
        return Request(
            "GET" if body is None else "POST",
            self._servers[0] + path,
            params,
            own,
            None if body is None else msgspec.json.encode(body),
            self.timeout if timeout is None else timeout,
        )

    @property
    def server_count(self) -> int:
        """Return how many addresses there are."""
        return len(self._servers)

    def leave_server(self) -> str:
        """Ask another instance from now on; return the address of the one that is left."""
        server = self._servers.pop(0)
        self._servers.append(server)
        return server

    def ask_next_server(self, failed: Unreachable) -> QueryProblemError:
        """Ask another instance from now on; return the problem of the one that failed."""
        server = self.leave_server()
        msg = f"No instance answers at {server}: {failed.reason}."
        return QueryProblemError(
            ProblemCode.STORE_NOT_READY, msg, retry_after_ms=int(_RETRY_SECONDS * 1000)
        )

    def call(
        self,
        bound: Bound | None,
        path: str,
        params: Mapping[str, str],
        *,
        body: Any = None,
        accept: str | None = None,
    ) -> Conversation[Reply]:
        """Return the answer to a request; wait and retry as long as the timeout allows.

        Raises:
            QueryProblemError: The problem that an instance has named, or none answers.
        """
        deadline = self.clock() + self.timeout
        headers = {} if accept is None else {"Accept": accept}
        while True:
            # An instance that accepts a request and stands still leaves time for the others.
            wait = max(0.0, deadline - self.clock()) / len(self._servers)
            bounds = {} if bound is None else bound.params(wait)
            request = self.request(
                path,
                {**params, **bounds},
                body=body,
                headers=headers,
                timeout=wait + _GRACE_SECONDS,
            )
            reply: Reply | Unreachable = yield Send(request)
            if isinstance(reply, Unreachable):
                problem = self.ask_next_server(reply)
            else:
                _note(bound, reply)
                if reply.status < 400:
                    return reply
                problem = problem_of(reply)
                if problem.code is ProblemCode.SNAPSHOT_GONE and bound and bound.is_forgettable:
                    bound.forget()
                    continue
            if problem.retry_after_ms is None:
                raise problem
            seconds = problem.retry_after_ms / 1000
            if self.clock() + seconds >= deadline:
                raise problem
            yield Pause(seconds)

    def value(self, bound: Bound, store: str, key: Any) -> Conversation[tuple[Any, Reply] | None]:
        """Return the value of a key and the answer that had it; None: there is no such key."""
        encoding = self.encoding(store)
        path = store_path(store)
        try:
            reply = yield from self._value_reply(bound, path, encoding, key)
        except QueryProblemError as error:
            if error.code is ProblemCode.KEY_NOT_FOUND:
                return None
            raise
        return encoding.value_from_body(reply.body), reply

    def _value_reply(
        self, bound: Bound, path: str, encoding: StoreEncoding, key: Any
    ) -> Conversation[Reply]:
        text = ""
        if encoding.params or isinstance(key, str | int | float):
            text = encoding.key_to_text(key)
        if text in NO_PATHS:
            body = {"key": encoding.key_to_json(key)}
            return (yield from self.call(bound, f"{path}/get", encoding.params, body=body))
        return (yield from self.call(bound, f"{path}/keys/{quote(text, safe='')}", encoding.params))

    def rows(
        self, bound: Bound, store: str, route: str, params: Mapping[str, str], read: ReadRow
    ) -> Conversation[None]:
        """Emit the rows of a list, page by page, all of one snapshot."""
        encoding = self.encoding(store)
        own = {**params, **encoding.params, "limit": str(FIRST_PAGE)}
        path = f"{store_path(store)}/{route}"
        of_page: Bound | None = bound
        while True:
            reply = yield from self.call(of_page, path, own)
            document = encoding.document(reply.body)
            for row in document["data"]:
                yield Emit(read(row, encoding))
            if document["next"] is None:
                return
            # The cursor names the snapshot.
            own |= {"cursor": document["next"], "limit": str(LATER_PAGES)}
            of_page = None

    def store_type(self, store: str) -> Conversation[type[LoggedStoreType]]:
        """Return the type of a store.

        Raises:
            QueryProblemError: There is no such store.
            StateStoreError: A newer instance has a kind of store that this version has not.
        """
        if self._catalog is not None:
            return type(self._catalog.store(store).type)
        if store not in self._kinds:
            reply = yield from self.call(None, "/v1/stores", {"counted": "false"})
            document = msgspec.json.decode(reply.body)
            self._kinds = {each["name"]: each["kind"] for each in document["data"]}
        if store not in self._kinds:
            msg = f"The application has no queryable store {store!r}. It has {sorted(self._kinds)}."
            raise QueryProblemError(ProblemCode.UNKNOWN_STORE, msg)
        return logged_type_named(self._kinds[store])

    def documents(self, path: str, params: Mapping[str, str]) -> Conversation[list[Any]]:
        """Return the items of a list that is about the application, not about a snapshot."""
        reply = yield from self.call(None, path, params)
        items: list[Any] = msgspec.json.decode(reply.body)["data"]
        return items

    def metadata(self, store: str | None, key: Any) -> Conversation[list[Any]]:
        """Return the shards and the instances that have them."""
        params: dict[str, str] = {}
        if store is not None:
            params["store"] = store
            if key is not None:
                encoding = self.encoding(store)
                params |= {"key": encoding.key_to_text(key), **encoding.params}
        return (yield from self.documents("/v1/metadata", params))

    def sql(self, bound: Bound, text: str, params: SqlParameters) -> Conversation[SqlResult]:
        """Return the rows of a statement."""
        body = {"sql": text, "params": _json_params(params)}
        reply = yield from self.call(bound, "/v1/sql", {}, body=body)
        document = msgspec.json.decode(reply.body)
        rows = [tuple(map(sql_from_json, row)) for row in document["data"]]
        return SqlResult(tuple(document["columns"]), rows)

    def arrow(self, bound: Bound, store: str) -> Conversation[Any]:
        """Return all rows of a store as an Arrow table."""
        route = yield from self.rows_route(store)
        reply = yield from self.call(bound, f"{store_path(store)}/{route}", {}, accept=ARROW_TYPE)
        # Imported by those who use it only.
        import pyarrow as pa

        with pa.ipc.open_stream(reply.body) as reader:
            return reader.read_all()

    def rows_route(self, store: str) -> Conversation[str]:
        """Return the route of all rows of a store."""
        store_type = yield from self.store_type(store)
        if store_type.has_sessions:
            return "sessions"
        return "windows" if store_type.has_windows else "entries"


def _json_params(params: SqlParameters) -> Any:
    if isinstance(params, Mapping):
        return {name: json_from_sql(value) for name, value in params.items()}
    return None if params is None else [*map(json_from_sql, params)]


def problem_of(reply: Reply) -> QueryProblemError:
    """Return the problem that an instance has named."""
    try:
        document = msgspec.json.decode(reply.body)
        code = ProblemCode[document["code"]]
        detail = document["detail"]
        retry_after = document.get("retry_after_ms")
    except (ValueError, KeyError, TypeError, AttributeError):
        msg = f"The answer has status {reply.status} and is not one of Headrace's."
        return QueryProblemError(ProblemCode.INTERNAL, msg)
    return QueryProblemError(code, detail, retry_after_ms=retry_after)


def _note(bound: Bound | None, reply: Reply) -> None:
    token = reply.headers.get(SNAPSHOT_HEADER.lower())
    if bound is not None and token is not None:
        bound.note(parse_token(token))


def store_path(store: str) -> str:
    """Return the path of the routes of a store."""
    return f"/v1/stores/{quote(store, safe='')}"


def _base_url(server: str) -> str:
    url = server if "://" in server else f"http://{server}"
    return url.rstrip("/")
