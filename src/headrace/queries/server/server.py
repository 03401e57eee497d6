"""The HTTP server of an instance: uvicorn in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.config import StreamsConfig
from headrace.errors import ConfigError, QueryError
from headrace.queries.server.doors import check_bind, read_token
from headrace.queries.server.point_reads import PREFIX

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from headrace.queries.server.point_reads import PointReads

FIRST_PORT = 8080
LAST_PORT = 8099
MOST_AT_ONCE = 16
"""How many requests of one connection are answered before others have their turn."""

_CLOSING_SECONDS = 1
"""How long requests that are under way may take when the server stops."""
_ABORT_SECONDS = 0.2
"""How long a client may take to answer that it closes its connection too, with TLS."""
_START_SECONDS = 30.0
_STATUS_LINES = {200: b"HTTP/1.1 200 OK\r\n", 304: b"HTTP/1.1 304 Not Modified\r\n"}


class ServedApp(Protocol):
    """An ASGI application that can end its endless answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

    def end_watches(self) -> None:
        """End the answers that have no end of their own: the server stops."""


class QueryServer:
    """A socket that answers HTTP requests, from `bind` on to `close`.

    Args:
        config: Names the files of the token and of the certificate.
        host: The address to listen on.
        port: The port; 0: any.
        last_port: If the port is taken, the next free one up to this one is used.

    Raises:
        ConfigError: Other machines could read without a token, or the token cannot be read.
    """

    def __init__(
        self,
        config: StreamsConfig,
        host: str,
        port: int,
        *,
        last_port: int | None = None,
    ) -> None:
        self._host, self._ports = host, range(port, max(port, last_port or port) + 1)
        path = config.server_token_file
        check_bind(host, None if path is None else read_token(path))
        self._certificate, self._key = config.server_tls_certificate, config.server_tls_key
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._app: ServedApp | None = None
        self._thread: threading.Thread | None = None

    def bind(self) -> int:
        """Take the port, and return it.

        Raises:
            QueryError: No port is free, or this machine does not have the address.
        """
        for port in self._ports:
            try:
                self._socket = _bound(self._host, port)
            except OSError as error:
                reason = error.strerror or str(error)
            else:
                return self.port
        ports = f"{self._ports[0]}" if len(self._ports) == 1 else f"{self._ports}"
        msg = f"The server cannot listen on {self._host!r}, port {ports}: {reason}."
        raise QueryError(msg)

    @property
    def port(self) -> int:
        """Return the port, after `bind`."""
        assert self._socket is not None, "bound"
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Return the address for clients, after `bind`."""
        scheme = "http" if self._certificate is None else "https"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}"

    def start(self, app: ServedApp, reads: PointReads | None = None) -> None:
        """Serve an application; return when requests are answered.

        Args:
            app: What `create_app` returns.
            reads: Answers its point reads, of which the application then sees none.

        Raises:
            ConfigError: The certificate or its key cannot be used.
            QueryError: The application does not start; the log has the reason.
        """
        assert self._socket is not None, "bound"
        self._app = app
        protocol: Any = "httptools" if reads is None else partial(Connection, reads)
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSING_SECONDS,
            ssl_certfile=self._certificate,
            ssl_keyfile=self._key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            msg = f"`server.tls.certificate` and `server.tls.key` cannot be used: {error}."
            raise ConfigError([msg]) from None
        self._server = _Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="headrace-server", daemon=True
        )
        self._thread.start()
        self._server.has_started.wait(_START_SECONDS)
        if not self._server.started:
            msg = f"The server on {self.url} did not start."
            raise QueryError(msg)

    def close(self) -> None:
        """Stop, after at most a few seconds; watches end at once."""
        server, thread = self._server, self._thread
        if server is not None and thread is not None:
            loop = server.loop
            if loop is not None and thread.is_alive() and self._app is not None:
                with suppress(RuntimeError):  # the loop may have been closed just now
                    loop.call_soon_threadsafe(self._app.end_watches)
            server.should_exit = True
            thread.join(2 * _CLOSING_SECONDS + 3)
        if self._socket is not None:
            self._socket.close()


class Connection(HttpToolsProtocol):
    """A connection of a client, which answers a point read as soon as it is complete.

    For each request uvicorn makes a scope, a task and two messages, and a head from a list of
    headers: as much work as the read itself. All requests but plain point reads are uvicorn's.

    Args:
        reads: Answers point reads.
        arguments: Those of uvicorn's protocol.
    """

    def __init__(self, reads: PointReads, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._reads = reads
        self._is_answered = False
        self._answered_at_once = 0

    def data_received(self, data: bytes) -> None:
        self._answered_at_once = 0
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._is_answered = self._may_answer() and self._answer()
        if not self._is_answered:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._is_answered:
            super().on_message_complete()

    def _may_answer(self) -> bool:
        """Return whether the request looks like a point read, and the client waits for it alone."""
        url, cycle = self.url, self.cycle
        parser: Any = self.parser
        return (
            url.startswith(PREFIX)
            and parser.get_method() == b"GET"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and (cycle is None or cycle.response_complete)
            and self._answered_at_once < MOST_AT_ONCE
            and not self.flow.write_paused
            and not self.transport.is_closing()
            and b"#" not in url
        )

    def _answer(self) -> bool:
        """Answer the request; return False if uvicorn has to."""
        path, _, query = self.url.partition(b"?")
        answer = self._reads.answer(path, query, self.headers, self.client)
        if answer is None:
            return False
        head = [_STATUS_LINES[answer.status]]
        head += [b"%b: %b\r\n" % each for each in self.server_state.default_headers]
        self.transport.write(b"%b%b\r\n%b" % (b"".join(head), answer.head, answer.body))
        self._answered_at_once += 1
        self.on_response_complete()
        return True


class _Server(uvicorn.Server):
    """A server that says when it has started. It leaves signals to the main thread."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            await super().startup(sockets)
        except SystemExit:  # uvicorn logs the reason, and ends what it takes for its own process
            self.should_exit = True
        finally:
            self.has_started.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A client with an idle connection does not look at it, so it does not answer.
        ending = asyncio.create_task(self._abort_closing())
        await super().shutdown(sockets)
        await ending

    async def _abort_closing(self) -> None:
        await asyncio.sleep(_ABORT_SECONDS)
        for connection in [*self.server_state.connections]:
            transport = connection.transport
            if transport.is_closing():
                transport.abort()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host.strip("[]"), port))
        made.listen(1024)
    except BaseException:
        made.close()
        raise
    return made
