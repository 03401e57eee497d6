"""A schema registry that can be away: it knows a schema for each number, and nothing else."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REGISTRY = "CHAOS_REGISTRY"
"""The variable with the URL of the registry."""

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "long"}],
}
"""The schema of every number; the numbers differ in its documentation."""


class Registry:
    """A registry over HTTP on a free port of this machine."""

    def __init__(self) -> None:
        self.failure: int | None = None
        """The status with which it answers every request, if it is not well."""
        self._server = self._serve(0)
        self._port = self._server.server_port
        self.url = f"http://127.0.0.1:{self._port}"

    def refuse(self) -> None:
        """Refuse connections."""
        self._server.shutdown()
        self._server.server_close()

    def accept(self) -> None:
        """Accept connections again."""
        self._server = self._serve(self._port)

    def close(self) -> None:
        """End it."""
        self.refuse()

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of an answer."""
        if self.failure is not None:
            return self.failure, {"error_code": 100 * self.failure, "message": "away"}
        found = re.fullmatch(r"/schemas/ids/(\d+)", path.partition("?")[0])
        if found is None:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, {"schema": json.dumps({**SCHEMA, "doc": f"Number {found[1]}."})}

    def _serve(self, port: int) -> ThreadingHTTPServer:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = registry.answer(self.path)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server
