"""All that answers queries in one process: the instance, the coordinator and the HTTP server."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections.abc import Callable

from headrace.config import StreamsConfig
from headrace.errors import ConfigError, StreamsError
from headrace.queries.catalog import catalog_of
from headrace.queries.coordination.coordinator import Coordinator
from headrace.queries.coordination.http_transport import HttpTransport
from headrace.queries.instance import Instance
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server import QueryApp, QueryServer, create_app
from headrace.queries.server.doors import read_token
from headrace.runtime.plan import plan_topology
from headrace.topology.topology import Topology

_RETRY_SECONDS = 5.0
_LOOK_SECONDS = 0.02
_CLOSE_SECONDS = 30.0
_SWITCH_SECONDS = 0.0005
"""How long a thread runs at most while others wait. Python's own 5 ms are half of the time that a
slow answer may take."""

_log = logging.getLogger("headrace")


class QueryService:
    """Answers queries of an application at its ``application.server``.

    Args:
        topology: The program.
        config: The settings of the application.
        server: Where it listens; by default at ``application.server``.
        last_port: If the port is taken, the next free one up to this one is used.
        enable_admin: Whether routes that write are allowed.
        restarts: Whether the instance restarts after a failure.
        add_routes: Adds routes to those that the server has.

    Raises:
        ConfigError: There is no address, other machines could read without a token, or the token
            cannot be read.
        TopologyError: The program is wrong.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        server: str | None = None,
        last_port: int | None = None,
        enable_admin: bool = False,
        restarts: bool = False,
        add_routes: Callable[[QueryApp], None] | None = None,
    ) -> None:
        self.topology = topology
        self.config = config
        address = server or config.application_server
        if address is None:
            msg = "`application.server` is not set. Set it to the host and port for queries."
            raise ConfigError([msg])
        self._host, _, port = address.rpartition(":")
        self._port, self._last_port = int(port), last_port
        self._enable_admin = enable_admin
        self._restarts = restarts
        self._add_routes = add_routes
        self.catalog = catalog_of(plan_topology(topology, config))
        """The stores that can be queried."""
        self._server = self._new_server()
        self._instance: Instance | None = None
        self._coordinator: Coordinator | None = None
        self._has_waited = False
        self._closing = threading.Event()
        self._starter: threading.Thread | None = None

    def start(self) -> None:
        """Take the port, and answer from now on: at first that the stores are not ready.

        From now on threads of this process take turns more often, so that requests wait less for
        the thread that applies changes. Until `close` Python's garbage collector passes over the
        objects that are there now: to look at all of them takes 65 ms, and each request waits.

        Raises:
            QueryError: The port is taken, or another instance of the same name runs.
            BrokerError: The log does not answer.
            ConfigError: The certificate or its key cannot be used.
        """
        self._server = self._new_server()
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        try:
            port = self._server.bind()
            transport = transport_of(self.config)
            self._instance = Instance(
                self.catalog,
                self.config,
                name=f"{self._host}:{port}",
                restarts=self._restarts,
                transport=transport,
                source=transport,
            )
            self._coordinator = Coordinator(self._instance, transport)
            self._instance.start()
            app = create_app(self, enable_admin=self._enable_admin)
            if self._add_routes is not None:
                self._add_routes(app)
            self._server.start(app, app.point_reads)
            gc.collect()
            gc.freeze()
        except BaseException:
            self._stop()
            raise
        _log.info("Queries are answered at %s.", self.url)

    def start_in_background(self) -> None:
        """Start as soon as that is possible: the application does not wait for it."""
        self._starter = threading.Thread(
            target=self._start_once, name="headrace-queries", daemon=True
        )
        self._starter.start()

    def wait_once(self, seconds: float) -> Instance:
        """Return the instance; the first call waits until it is ready, at most for some seconds.

        Raises:
            QueryProblemError: The service has not started yet.
        """
        if not self._has_waited:
            deadline = time.monotonic() + seconds
            while not self.is_ready() and time.monotonic() < deadline:
                if self._closing.wait(_LOOK_SECONDS):
                    break
            self._has_waited = self.is_started
        instance = self._instance
        if instance is None:
            raise QueryProblemError(
                ProblemCode.STORE_NOT_READY,
                "The service of queries has not started yet; the log says why. Ask again soon.",
                retry_after_ms=int(_RETRY_SECONDS * 1_000),
            )
        return instance

    def close(self) -> None:
        """Stop answering, and close the copy."""
        self._closing.set()
        if self._starter is not None:
            self._starter.join(_CLOSE_SECONDS)
        self._stop()

    @property
    def is_started(self) -> bool:
        """Return whether it has its port and its instance."""
        return self._instance is not None

    @property
    def instance(self) -> Instance:
        """The instance of this process, after the start."""
        assert self._instance is not None, "started"
        return self._instance

    @property
    def coordinator(self) -> Coordinator:
        """Answers for the whole application, after the start."""
        assert self._coordinator is not None, "started"
        return self._coordinator

    @property
    def url(self) -> str:
        """The address for clients, after the start."""
        return self._server.url

    def is_ready(self) -> bool:
        """Return whether all stores that this instance should have can be read."""
        return self._instance is not None and self._instance.is_ready()

    def failure(self) -> Exception | None:
        """Return the error with which the instance has stopped; None: it works."""
        return None if self._instance is None else self._instance.failure()

    def _new_server(self) -> QueryServer:
        host = self._host.strip("[]")
        return QueryServer(self.config, host, self._port, last_port=self._last_port)

    def _start_once(self) -> None:
        while not self._closing.is_set():
            try:
                self.start()
            except StreamsError as error:
                _log.warning("Queries are not answered yet: %s", error)
                self._closing.wait(_RETRY_SECONDS)
            except Exception:  # queries never stop the application
                _log.exception("Queries are not answered.")
                return
            else:
                return

    def _stop(self) -> None:
        """Close the server first: then nobody reads the copy."""
        self._server.close()
        gc.unfreeze()
        instance, self._instance = self._instance, None
        if instance is not None:
            instance.close()


def transport_of(config: StreamsConfig) -> HttpTransport:
    """Return how to ask the instances of an application: with its token and its certificate.

    Raises:
        ConfigError: The token or the certificate cannot be read.
    """
    path = config.server_token_file
    return HttpTransport(None if path is None else read_token(path), config.server_tls_certificate)
