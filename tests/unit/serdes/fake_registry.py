"""A schema registry over HTTP on a free port of this machine, as small as the tests need it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.serdes import Schema, SchemaRegistry


class FakeRegistry:
    """The schemas of the server, and the requests it got."""

    def __init__(self, *, user_info: str | None = None) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.user_info = user_info
        self.failure: tuple[int, int, str] | None = None
        self.failures: list[tuple[int, int, str]] = []
        """Failures of the next requests."""
        self.url = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        failure = self.failures.pop(0) if self.failures else self.failure
        if failure is not None:
            status, code, message = failure
            return status, {"error_code": code, "message": message}
        match [method, *map(unquote, path.strip("/").split("/"))]:
            case ["POST", "subjects", subject, "versions"]:
                return 200, {"id": self._register(subject, body)}
            case ["POST", "subjects", subject]:
                return self._lookup(subject, body)
            case ["GET", "schemas", "ids", schema_id] if int(schema_id) <= len(self.schemas):
                return 200, self.schemas[int(schema_id) - 1]
            case ["GET", "subjects", subject, "versions", version]:
                number = self.subjects[subject][int(version) - 1]
                schema = self.schemas[number - 1]
                return 200, {"subject": subject, "version": int(version), "id": number, **schema}
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        if body not in self.schemas:
            self.schemas.append(body)
        schema_id = self.schemas.index(body) + 1
        ids = self.subjects.setdefault(subject, [])
        if schema_id not in ids:
            ids.append(schema_id)
        return schema_id

    def _lookup(self, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        if body not in self.schemas or subject not in self.subjects:
            return 404, {"error_code": 40401, "message": "Subject not found"}
        schema_id = self.schemas.index(body) + 1
        version = self.subjects[subject].index(schema_id) + 1
        return 200, {"subject": subject, "version": version, "id": schema_id, **body}


@contextmanager
def fake_registry(*, user_info: str | None = None) -> Iterator[FakeRegistry]:
    """Serve a registry until the block ends."""
    registry = FakeRegistry(user_info=user_info)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            status, answer = 401, {"error_code": 40101, "message": "Unauthorized"}
            if self._is_allowed():
                path = urlsplit(self.path).path
                status, answer = registry.answer(method, path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _is_allowed(self) -> bool:
            if registry.user_info is None:
                return True
            secret = base64.b64encode(registry.user_info.encode()).decode()
            return self.headers.get("Authorization") == f"Basic {secret}"

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class MemoryRegistry(SchemaRegistry):
    """A registry that is a list, for tests that are not about HTTP."""

    def __init__(self) -> None:
        self.registered: list[tuple[str, Schema]] = []

    def register(self, subject: str, schema: Schema, /) -> int:
        if (subject, schema) not in self.registered:
            self.registered.append((subject, schema))
        return self.registered.index((subject, schema)) + 1

    def schema_of(self, schema_id: int, /) -> Schema:
        return self.registered[schema_id - 1][1]
