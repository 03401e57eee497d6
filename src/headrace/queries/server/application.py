"""Make the application of an instance's HTTP server, to which users add routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from headrace.brokers.opening import open_log
from headrace.brokers.sessions import Broker
from headrace.errors import StreamsError
from headrace.queries.coordination.http_transport import HttpTransport
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.docs_page import DOCS_PAGE
from headrace.queries.server.doors import Doors, internal_problem, read_token
from headrace.queries.server.openapi import described
from headrace.queries.server.point_reads import PointReads
from headrace.queries.server.problem_answers import problem_answer
from headrace.queries.server.routes import (
    changes,
    dead_letters,
    health,
    local,
    operations,
    queries,
    sql,
    stores,
)
from headrace.queries.server.served import QueriedApplication, Served

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_ROUTERS = (
    # Routes whose path ends in a key come after those that do not.
    changes,
    stores,
    queries,
    sql,
    operations,
    dead_letters,
    local,
    health,
)


class QueryApp(FastAPI):
    """The routes of an instance, behind its doors. Routes of users are behind them too."""

    doors: Doors
    """Admit requests, or refuse them."""
    point_reads: PointReads
    """Answers point reads, and gives all other requests to the doors."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.point_reads(scope, receive, send)

    def end_watches(self) -> None:
        """End the answers that have no end of their own: the server stops."""
        self.doors.end_watches()

    def openapi(self) -> dict[str, Any]:
        """Return the description of all routes."""
        if self.openapi_schema is None:
            self.openapi_schema = described(super().openapi())
        return self.openapi_schema


def create_app(
    application: QueriedApplication,
    *,
    enable_admin: bool = False,
    open_broker: Callable[[], Broker] | None = None,
) -> QueryApp:
    """Return the application that answers queries over HTTP; add your own routes to it.

    Any ASGI server may serve it. An application without an `application_server` answers from a
    private copy of all its stores.

    Args:
        application: A running application (`KafkaStreams`), or a service of queries.
        enable_admin: Whether routes that write are allowed.
        open_broker: Opens the log of the application; by default the one of its settings.

    Raises:
        ConfigError: The token or the certificate cannot be read.
    """
    config = application.config
    path = config.server_token_file
    token = None if path is None else read_token(path)
    transport = HttpTransport(token, config.server_tls_certificate)
    opener = open_broker or (lambda: open_log(config))
    served = Served(application, opener, transport, is_admin=enable_admin)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        # The first question would start a private copy in the event loop.
        with suppress(StreamsError):
            await asyncio.to_thread(lambda: application.instance)
        yield
        await transport.close()

    app = QueryApp(
        title="Headrace",
        version="1",
        summary="Queries of the stores of a stream application.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=True,
        lifespan=lifespan,
    )
    app.state.headrace = served
    for module in _ROUTERS:
        app.include_router(module.router)
    app.add_api_route("/docs", _docs, include_in_schema=False)
    app.add_exception_handler(QueryProblemError, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    app.doors = Doors(_Counted(super(QueryApp, app).__call__, served), token, served.is_own_name)
    app.point_reads = PointReads(served, app.doors)
    return app


class _Counted:
    """Counts the queries of the application behind it."""

    def __init__(self, app: Any, served: Served) -> None:
        self._app, self._served = app, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def noting_send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        finally:
            _, _, kind, *rest = scope["path"].split("/")
            store = rest[0] if kind == "stores" and rest else ""
            if not self._served.has_store(store):
                store = ""
            kinds = {"keys", "get", "entries", "windows", "sessions", "versions", "changes"}
            if kind == "stores":
                kind = rest[1] if len(rest) > 1 and rest[1] in kinds else "stores"
            elif kind not in _KINDS:
                kind = "other"
            code = scope.get("state", {}).get("code") or ("OK" if status < 400 else str(status))
            seconds = None if kind == "changes" else time.perf_counter() - began
            self._served.metrics.count(store, kind, code, seconds)


_KINDS = {"query", "sql", "metadata", "snapshots", "topology", "lag", "errors", "dlq"}


async def _docs() -> Response:
    return Response(DOCS_PAGE, media_type="text/html")


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueryProblemError), "registered for it"
    request.state.code = error.code.name
    return problem_answer(error, request.url.path, request.state.request_id)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError), "registered for it"
    found = error.errors()
    problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:5])
    is_limit = any(
        each["type"] in ("less_than_equal", "too_long") and each["loc"][-1] in _LIMITS
        for each in found
    )
    code = ProblemCode.LIMIT_TOO_LARGE if is_limit else ProblemCode.BAD_REQUEST
    return await _problem(request, QueryProblemError(code, f"{problems}."))


async def _failed(request: Request, _error: Exception) -> Response:
    # The doors get the error too, and log it.
    return await _problem(request, internal_problem(request.state.request_id))


_LIMITS = {"limit", "wait_ms", "reads"}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for it"
    if error.status_code == 404:
        msg = f"There is no route {request.url.path!r}. All routes are at /docs."
        return await _problem(request, QueryProblemError(ProblemCode.UNKNOWN_ROUTE, msg))
    if error.status_code == 405:
        msg = f"The route does not take {request.method}."
        answer = await _problem(request, QueryProblemError(ProblemCode.WRONG_METHOD, msg))
        answer.headers.update(error.headers or {})
        return answer
    detail = str(error.detail)
    return await _problem(request, QueryProblemError(ProblemCode.BAD_REQUEST, detail))
