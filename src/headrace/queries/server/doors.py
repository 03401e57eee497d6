"""The doors of the server: bind addresses, tokens, host names, sizes, and counts of requests."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import itertools
import logging
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect

from headrace.errors import ConfigError
from headrace.queries.http_names import REQUEST_ID_HEADER
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.problem_answers import problem_answer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES = 1024 * 1024
MOST_REQUESTS = 256
"""How many requests of clients may be under way; watches are not among them."""
MOST_LOCAL_REQUESTS = 256
"""How many requests of other instances may be under way."""
MOST_WATCHES = 200
SEND_SECONDS = 30.0
"""How long a reader may leave a part of an answer unread before it is cut off."""

OPEN_PATHS = frozenset({"/health/live", "/health/ready", "/docs", "/openapi.json"})
"""The paths that need no token: they show no data."""

_PROBES = frozenset({"/health/live", "/health/ready"})
"""They have no limit: a supervisor must not restart an instance because it is busy."""

_FEWEST_CHARACTERS = 16
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger("headrace")


def read_token(path: Path) -> str:
    """Return the token of a file.

    Raises:
        ConfigError: The file cannot be read, or holds no token of 16 printable characters or more.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        msg = f"The token of `server.token.file` {str(path)!r} cannot be read: {reason}."
        raise ConfigError([msg]) from None
    if len(token) < _FEWEST_CHARACTERS or not all("!" <= character <= "~" for character in token):
        msg = (
            f"The file {str(path)!r} holds no token. Write at least {_FEWEST_CHARACTERS} "
            "characters without spaces to it, for example by `openssl rand -hex 32`."
        )
        raise ConfigError([msg])
    return token


def is_loopback(host: str) -> bool:
    """Return whether only processes of this machine can reach an address."""
    with suppress(ValueError):
        address = ipaddress.ip_address(host.strip("[]"))
        # A socket for both versions of the protocol sees 127.0.0.1 as ::ffff:127.0.0.1.
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    return host == "localhost"


@lru_cache(maxsize=64)
def _is_loopback_client(host: str) -> bool:
    return not host or is_loopback(host)


@lru_cache(maxsize=64)
def _is_loopback_header(host: str) -> bool:
    return is_loopback(_without_port(host))


def _without_port(host: str) -> str:
    return host.rpartition(":")[0] if re.search(r":[0-9]+$", host) else host


def check_bind(host: str, token: str | None) -> None:
    """Refuse to serve other machines without a token.

    Raises:
        ConfigError: The address can be reached from other machines, and there is no token.
    """
    if token is None and not is_loopback(host):
        msg = (
            f"Any machine that reaches {host!r} could read all stores. "
            "Set `server.token.file`, or use 127.0.0.1."
        )
        raise ConfigError([msg])


class _Kind(Enum):
    """Requests that share a limit."""

    PROBE = auto()
    LOCAL = auto()
    """Of another instance."""
    WATCH = auto()
    REQUEST = auto()
    """Of a client, all others."""


class Doors:
    """The ASGI application in front of all others: it lets a request in, or refuses it.

    Args:
        app: Answers the requests that may come in.
        token: What clients must send; None: nothing, but only this machine is answered.
        is_own_name: Returns whether a server without a token may be asked under a name, besides
            loopback ones. A web page under another name that leads here is refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        is_own_name: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        self._app = app
        self._expected = None if token is None else token.encode()
        self._is_own_name = is_own_name
        self._requests = Counter[_Kind]()
        self._watches: set[asyncio.Task[Any]] = set()
        self._is_closing = False
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(REQUEST_ID_HEADER, "")
        request_id = given if _REQUEST_ID.fullmatch(given) else self.new_request_id()
        scope.setdefault("state", {})["request_id"] = request_id
        kind = _kind_of(scope["path"])
        try:
            self._check(scope, kind, headers)
            _check_path(scope)
        except QueryProblemError as problem:
            await problem_answer(problem, scope["path"], request_id)(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None, "a server answers in a task"
        self._requests[kind] += 1
        if kind is _Kind.WATCH:
            self._watches.add(task)
        try:
            await self._answer(scope, receive, send, request_id)
        except asyncio.CancelledError:
            if not self._is_closing:
                raise
            task.uncancel()
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._requests[kind] -= 1
            self._watches.discard(task)

    def end_watches(self) -> None:
        """End the answers that have no end of their own: the server stops."""
        self._is_closing = True
        for task in self._watches:
            task.cancel()

    def new_request_id(self) -> str:
        """Return an id for a request that has none."""
        return f"{self._prefix}-{next(self._numbers):x}"

    def _check(self, scope: Scope, kind: _Kind, headers: Headers) -> None:
        if scope["path"] not in OPEN_PATHS:
            authorization, host = headers.get("authorization"), headers.get("host", "")
            self.check_caller(authorization, host, scope.get("client"))
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > MOST_BODY_BYTES:
            raise _too_large()
        if self._requests[kind] >= _most(kind):
            msg = "Too many requests are under way on this instance. Wait, or ask another one."
            raise QueryProblemError(ProblemCode.TOO_MANY_QUERIES, msg, retry_after_ms=1_000)

    def check_caller(
        self, authorization: str | None, host: str, client: Sequence[Any] | None
    ) -> None:
        """Refuse a caller without the token.

        If there is no token, refuse other machines, and web pages under another name.

        The client is None if it uses a Unix socket.

        Raises:
            QueryProblemError: The caller may not come in.
        """
        if self._expected is None:
            # Only the address is sure: every caller may write any `Host`.
            if client is not None and not _is_loopback_client(client[0]):
                msg = "Other machines need a token. Set `server.token.file` on this instance."
                raise QueryProblemError(ProblemCode.FORBIDDEN, msg)
            if not _is_loopback_header(host) and not self._is_own_name(_without_port(host)):
                msg = f"This instance does not answer under the name {host!r}."
                raise QueryProblemError(ProblemCode.FORBIDDEN, msg)
            return
        scheme, _, given = (authorization or "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode(), self._expected)
        if scheme.lower() != "bearer" or not is_right:
            msg = "Send the token as 'Authorization: Bearer <token>'."
            raise QueryProblemError(ProblemCode.UNAUTHENTICATED, msg)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        has_begun = is_complete = False

        async def send_in_time(message: Message) -> None:
            nonlocal has_begun, is_complete
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)
            is_complete = message["type"] == "http.response.body" and not message.get("more_body")

        try:
            await self._app(scope, _limited(receive), send_in_time)
        except ClientDisconnect:
            return  # nobody waits for an answer
        except Exception as error:
            if has_begun and not is_complete:
                raise  # the server cuts the connection, so that the reader notices
            problem = error if isinstance(error, QueryProblemError) else _failed(request_id)
            if not has_begun:
                await problem_answer(problem, scope["path"], request_id)(scope, receive, send)


def _check_path(scope: Scope) -> None:
    """Refuse a path that is not UTF-8: it would lead to another key."""
    raw: bytes = scope.get("raw_path") or b""
    if "\ufffd" in scope["path"] and b"%EF%BF%BD" not in raw.upper():
        msg = "The path is not UTF-8. Send keys that are bytes as base64url."
        raise QueryProblemError(ProblemCode.BAD_REQUEST, msg)


def _kind_of(path: str) -> _Kind:
    if path in _PROBES:
        return _Kind.PROBE
    if path.startswith("/local/"):
        return _Kind.LOCAL
    is_watch = path.startswith("/v1/stores/") and path.endswith("/changes")
    return _Kind.WATCH if is_watch else _Kind.REQUEST


def _most(kind: _Kind) -> float:
    """Return how many requests of a kind may be under way."""
    match kind:
        case _Kind.PROBE:
            return math.inf
        case _Kind.LOCAL:
            return MOST_LOCAL_REQUESTS
        case _Kind.WATCH:
            return MOST_WATCHES
        case _Kind.REQUEST:
            return MOST_REQUESTS


def _limited(receive: Receive) -> Receive:
    """Return a function that receives a body, up to the limit."""
    size = 0

    async def receive_limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MOST_BODY_BYTES:
            raise _too_large()
        return message

    return receive_limited


def _too_large() -> QueryProblemError:
    msg = f"A body may have {MOST_BODY_BYTES} bytes. Send fewer reads at once."
    return QueryProblemError(ProblemCode.BODY_TOO_LARGE, msg)


def _failed(request_id: str) -> QueryProblemError:
    """Log the error that is handled now, and return what the caller gets."""
    _log.exception("Request %s failed.", request_id)
    return internal_problem(request_id)


def internal_problem(request_id: str) -> QueryProblemError:
    """Return what the caller gets if a request fails by an error that the doors log."""
    msg = f"The log of the instance has the reason, under request {request_id}."
    return QueryProblemError(ProblemCode.INTERNAL, msg)
