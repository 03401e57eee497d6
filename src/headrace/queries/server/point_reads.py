"""The fast path of point reads: one ASGI function in front of everything else.

It answers ``GET /v1/stores/{store}/keys/{key}`` from this instance's own copy, if the newest
snapshot will do. Every other request, and every problem, goes to the application behind it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from headrace.errors import QueryError
from headrace.queries.http_names import (
    AGE_HEADER,
    JSON_TYPE,
    POSITION_HEADER,
    REQUEST_ID_HEADER,
    SNAPSHOT_HEADER,
    TIMESTAMP_HEADER,
)
from headrace.queries.server.doors import Doors
from headrace.queries.server.replies import BYTES_TYPE, snapshot_headers
from headrace.queries.server.served import Served
from headrace.queries.server.store_encodings import Encoding, StoreEncoding
from headrace.queries.tokens import Token, parse_token, token_of
from headrace.runtime.snapshots import SnapshotRecord

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

Headers: TypeAlias = list[tuple[bytes, bytes]]

_PREFIX = b"/v1/stores/"
_KEYS = b"/keys/"
_AGE = AGE_HEADER.lower().encode()
_REQUEST_ID = REQUEST_ID_HEADER.lower().encode()
_TIMESTAMP = TIMESTAMP_HEADER.lower().encode()
_TYPES = {"json": JSON_TYPE, "bytes": BYTES_TYPE}


class _Wanted(NamedTuple):
    """The parameters of a point read that the fast path takes."""

    encoding: Encoding = "json"
    minimum: Token | None = None


_NEWEST = _Wanted()


class _Snapshot(NamedTuple):
    """The part that all answers of a snapshot in one encoding share.

    It does not refer to the view: the database stays locked while a view is open.
    """

    record: SnapshotRecord
    token: Token
    headers: Headers
    tag: bytes


class _Joined:
    """Joins the head and the body of one answer: uvicorn makes a system call for each."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.write(self._head + data)
            self._head = b""
        else:
            self._head = data

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        closing: bool = self._transport.is_closing()
        return closing


async def send_at_once(send: Send, head: Message, body: Message) -> None:
    """Send an answer; under uvicorn, in one write.

    Args:
        send: The function that the server gave to the application.
        head: The message with status and headers.
        body: The message with the whole body.
    """
    cycle: Any = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle):  # another server, or a layer in between
        await send(head)
        await send(body)
        return
    transport: Any = cycle.transport
    joined: Any = _Joined(transport)
    cycle.transport = joined
    try:
        await send(head)
        await send(body)
    finally:
        joined.flush()
        cycle.transport = transport


class PointReads:
    """Answers point reads of the newest local snapshot.

    Args:
        served: The state that the routes share.
        doors: Checks callers, and takes the requests that are not answered here.
    """

    def __init__(self, served: Served, doors: Doors) -> None:
        self._served, self._doors = served, doors
        self._last: dict[Encoding, _Snapshot] = {}
        self._encoded: dict[tuple[bytes, Encoding], StoreEncoding] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = None
        if scope["type"] == "http" and scope["method"] == "GET":
            try:
                answer = self._answer(scope)
            except QueryError:
                answer = None  # the application behind says why
        if answer is None:
            await self._doors(scope, receive, send)
            return
        status, headers, body = answer
        head = {"type": "http.response.start", "status": status, "headers": headers}
        await send_at_once(send, head, {"type": "http.response.body", "body": body})

    def _answer(self, scope: Scope) -> tuple[int, Headers, bytes] | None:
        # The path of the scope is decoded: a slash in the name of a store would end the name.
        path: bytes = scope.get("raw_path") or b""
        if not path.startswith(_PREFIX):
            return None
        began = time.perf_counter()
        name, is_key, key_text = path[len(_PREFIX) :].partition(_KEYS)
        wanted = _NEWEST if not scope["query_string"] else _wanted(scope["query_string"])
        if not is_key or wanted is None or b"/" in name or b"%" in name or not name.isascii():
            return None
        authorization, host, match = None, "", None
        for header, value in scope["headers"]:
            if header == b"host":
                host = value.decode("latin-1")
            elif header == b"authorization":
                authorization = value.decode("latin-1")
            elif header == b"if-none-match":
                match = value
            elif header == b"headrace-request-id":
                return None
        self._doors.check_caller(authorization, host, scope.get("client"))
        encoded = self._encoded.get((name, wanted.encoding))
        if encoded is None:
            encoded = self._served.encoding(name.decode(), wanted.encoding)
            self._encoded[name, wanted.encoding] = encoded
        answer = self._read(encoded, key_text, wanted, match)
        if answer is not None:
            seconds = time.perf_counter() - began
            self._served.metrics.count(encoded.store.name, "keys", "OK", seconds)
        return answer

    def _read(
        self, encoded: StoreEncoding, key_text: bytes, wanted: _Wanted, match: bytes | None
    ) -> tuple[int, Headers, bytes] | None:
        text = unquote_to_bytes(key_text) if b"%" in key_text else key_text
        key = encoded.key_from_text(text.decode("utf-8", "surrogateescape"))
        found = self._served.coordinator.newest_local(encoded.store.name, key)
        if found is None:
            return None
        value, timestamp, shown = found
        if value is None:
            return None
        snapshot = self._snapshot(shown.record, wanted.encoding)
        minimum = wanted.minimum
        if minimum is not None and (
            minimum.history != snapshot.token.history or minimum.snapshot > snapshot.token.snapshot
        ):
            return None
        headers = [
            *snapshot.headers,
            (_AGE, b"%d" % self._served.age_ms(shown.record)),
            (_REQUEST_ID, self._doors.new_request_id().encode()),
        ]
        if match is not None and snapshot.tag in match:
            return 304, headers, b""
        body = value if encoded.is_bytes else encoded.value_to_json(value)
        headers.append((b"content-length", b"%d" % len(body)))
        headers.append((b"content-type", _TYPES[wanted.encoding].encode()))
        if timestamp is not None:
            headers.append((_TIMESTAMP, b"%d" % timestamp))
        return 200, headers, body

    def _snapshot(self, record: SnapshotRecord, encoding: Encoding) -> _Snapshot:
        last = self._last.get(encoding)
        if last is None or last.record is not record:
            named = snapshot_headers(self._served, record, _TYPES[encoding])
            kept = (SNAPSHOT_HEADER, POSITION_HEADER, "ETag", "Cache-Control", "Vary")
            headers = [
                (each.lower().encode(), named[each].encode()) for each in kept if each in named
            ]
            tag = named["ETag"].encode()
            last = self._last[encoding] = _Snapshot(record, token_of(record), headers, tag)
        return last


def _wanted(query: bytes) -> _Wanted | None:
    """Return the parameters of a query; None: the application behind reads them."""
    encoding: Encoding = "json"
    minimum = None
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"min_snapshot" and value.isascii():
            minimum = parse_token(value.decode())
        elif name == b"encoding" and value in (b"json", b"bytes"):
            encoding = "bytes" if value == b"bytes" else "json"
        elif name != b"wait_ms" or not (value.isdigit() and len(value) <= 4):
            return None
    return _Wanted(encoding, minimum)
