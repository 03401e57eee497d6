"""The fast path of point reads: one ASGI function in front of everything else.

It answers ``GET /v1/stores/{store}/keys/{key}`` without parameters from this instance's own copy.
Every other request, and every problem, goes to the application behind it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from headrace.queries.http_names import (
    AGE_HEADER,
    POSITION_HEADER,
    REQUEST_ID_HEADER,
    SNAPSHOT_HEADER,
    TIMESTAMP_HEADER,
)
from headrace.queries.problems import QueryProblemError
from headrace.queries.server.doors import Doors
from headrace.queries.server.replies import snapshot_headers
from headrace.queries.server.served import Served
from headrace.queries.server.store_encodings import StoreEncoding

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_PREFIX = "/v1/stores/"
_KEYS = "/keys/"
_JSON = (b"content-type", b"application/json")
_NO_CACHE = (b"cache-control", b"no-cache")
_VARY = (b"vary", b"Accept")


class PointReads:
    """Answers point reads of the newest local snapshot.

    Args:
        served: What the routes share.
        doors: Checks callers, and takes the requests that are not answered here.
    """

    def __init__(self, served: Served, doors: Doors) -> None:
        self._served, self._doors = served, doors
        self._last: tuple[Any, list[tuple[bytes, bytes]], bytes] | None = None
        """The newest snapshot that was read, its headers, and its entity tag."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = None
        if (
            scope["type"] == "http"
            and scope["method"] == "GET"
            and not scope["query_string"]
            and scope["path"].startswith(_PREFIX)
        ):
            try:
                answer = self._answer(scope)
            except QueryProblemError:
                answer = None  # the application behind says why
        if answer is None:
            await self._doors(scope, receive, send)
            return
        status, headers, body = answer
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, scope: Scope) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
        began = time.perf_counter()
        # The path of the scope is decoded: a slash in a store's name would end the name.
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        name, found, key_text = raw[len(_PREFIX) :].partition(_KEYS.encode())
        if not found or b"/" in name or b"%" in name:
            return None
        authorization = host = match = None
        for header, value in scope["headers"]:
            if header == b"host":
                host = value
            elif header == b"authorization":
                authorization = value
            elif header == b"if-none-match":
                match = value
        self._doors.check_caller(
            None if authorization is None else authorization.decode("latin-1"),
            "" if host is None else host.decode("latin-1"),
        )
        store = name.decode("ascii", "replace")
        encoded = self._served.encoding(store, "json")
        text = unquote_to_bytes(key_text).decode("utf-8", "surrogateescape")
        answer = self._read(encoded, encoded.key_from_text(text), match)
        if answer is not None:
            self._served.metrics.count(store, "keys", "OK", time.perf_counter() - began)
        return answer

    def _read(
        self, encoded: StoreEncoding, key: bytes, match: bytes | None
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
        found = self._served.coordinator.newest_local(encoded.store.name, key)
        if found is None:
            return None
        value, timestamp, shown = found
        if value is None:
            return None
        headers, tag = self._headers(shown)
        if match is not None and tag in match:
            return 304, [*headers, self._request_id()], b""
        body = encoded.value_to_json(value)
        own = [*headers, _JSON, (b"content-length", b"%d" % len(body)), self._request_id()]
        if timestamp is not None:
            own.append((TIMESTAMP_HEADER.lower().encode(), b"%d" % timestamp))
        return 200, own, body

    def _request_id(self) -> tuple[bytes, bytes]:
        return REQUEST_ID_HEADER.lower().encode(), self._doors.new_request_id().encode()

    def _headers(self, shown: Any) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Return the headers of a snapshot, and its entity tag."""
        last = self._last
        if last is None or last[0] is not shown:
            named = snapshot_headers(self._served, shown.record)
            headers = [
                (name.lower().encode(), named[name].encode())
                for name in (SNAPSHOT_HEADER, POSITION_HEADER, "ETag")
                if name in named
            ]
            last = self._last = shown, [*headers, _NO_CACHE, _VARY], named["ETag"].encode()
        age = b"%d" % self._served.age_ms(shown.record)
        return [*last[1], (AGE_HEADER.lower().encode(), age)], last[2]
