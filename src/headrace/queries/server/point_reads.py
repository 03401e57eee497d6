"""The fast path of point reads: one ASGI function in front of everything else.

It answers ``GET /v1/stores/{store}/keys/{key}`` from this instance's own copy, if the newest
snapshot will do. Every other request, and every problem, goes to the application behind it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from headrace.queries.http_names import (
    AGE_HEADER,
    JSON_TYPE,
    REQUEST_ID_HEADER,
    TIMESTAMP_HEADER,
)
from headrace.queries.server.doors import Doors
from headrace.queries.server.replies import BYTES_TYPE, snapshot_headers
from headrace.queries.server.served import Served
from headrace.queries.server.store_encodings import Encoding, StoreEncoding
from headrace.queries.tokens import Token, parse_token, token_of
from headrace.runtime.snapshots import SnapshotRecord

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

Headers: TypeAlias = list[tuple[bytes, bytes]]

PREFIX = b"/v1/stores/"
"""The paths of all point reads begin with it."""
_KEYS = b"/keys/"
_OTHERS = frozenset(
    {b"content-length", b"expect", b"headrace-request-id", b"transfer-encoding", b"upgrade"}
)
"""Requests with one of these headers are left to the application behind."""
_TYPES = {"json": JSON_TYPE, "bytes": BYTES_TYPE}
_HEAD = f"%b{AGE_HEADER}: %d\r\n{REQUEST_ID_HEADER}: %b\r\n".lower().encode()
_CONTENT = {
    encoding: f"content-length: %d\r\ncontent-type: {content_type}\r\n".encode()
    for encoding, content_type in _TYPES.items()
}
_TIMESTAMP = f"{TIMESTAMP_HEADER}: %d\r\n".lower().encode()


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
    head: bytes
    """The lines of its headers."""
    tag: bytes


class PointAnswer(NamedTuple):
    """The answer to a point read."""

    status: int
    head: bytes
    """The lines of the headers, each with its end."""
    body: bytes


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
            # The path of the scope is decoded: a slash in the name of a store would end the name.
            path, query = scope.get("raw_path") or b"", scope["query_string"]
            answer = self.answer(path, query, scope["headers"], scope.get("client"))
        if answer is None:
            await self._doors(scope, receive, send)
            return
        headers = [line.split(b": ", 1) for line in answer.head.splitlines()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    def answer(
        self, path: bytes, query: bytes, headers: Headers, client: Sequence[Any] | None
    ) -> PointAnswer | None:
        """Return the answer to a GET request; None: the application behind answers it.

        Args:
            path: The path as the client sent it.
            query: The query string.
            headers: The headers of the request, with lower-case names.
            client: The address of the caller, and its port; None: it uses a Unix socket.
        """
        try:
            return self._answer(path, query, headers, client)
        except Exception:  # the application behind says why, or logs it
            return None

    def _answer(
        self, path: bytes, query: bytes, headers: Headers, client: Sequence[Any] | None
    ) -> PointAnswer | None:
        if not path.startswith(PREFIX):
            return None
        began = time.perf_counter()
        name, is_key, key_text = path[len(PREFIX) :].partition(_KEYS)
        wanted = _NEWEST if not query else _wanted(query)
        if not is_key or wanted is None or b"/" in name or b"%" in name or not path.isascii():
            return None
        authorization, host, match = None, "", None
        for header, value in headers:
            if header == b"host":
                host = value.decode("latin-1")
            elif header == b"authorization":
                authorization = value.decode("latin-1")
            elif header == b"if-none-match":
                match = value
            elif header in _OTHERS:
                return None
        self._doors.check_caller(authorization, host, client)
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
    ) -> PointAnswer | None:
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
        age = self._served.age_ms(shown.record)
        head = _HEAD % (snapshot.head, age, self._doors.new_request_id().encode())
        if match is not None and snapshot.tag in match:
            return PointAnswer(304, head, b"")
        body = value if encoded.is_bytes else encoded.value_to_json(value)
        head += _CONTENT[wanted.encoding] % len(body)
        if timestamp is not None:
            head += _TIMESTAMP % timestamp
        return PointAnswer(200, head, body)

    def _snapshot(self, record: SnapshotRecord, encoding: Encoding) -> _Snapshot:
        last = self._last.get(encoding)
        if last is None or last.record is not record:
            named = snapshot_headers(self._served, record, _TYPES[encoding])
            del named[AGE_HEADER]
            head = "".join(f"{name.lower()}: {value}\r\n" for name, value in named.items())
            tag = named["ETag"].encode()
            last = self._last[encoding] = _Snapshot(record, token_of(record), head.encode(), tag)
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
