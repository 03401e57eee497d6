"""``headrace serve``: an instance that answers queries of an application, and runs nothing."""

from __future__ import annotations

import logging
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from headrace.cli.run import RunOptions, TargetName, application_of
from headrace.cli.session import Session, extra_needed, with_options
from headrace.cli.settings import BrokerOptions
from headrace.cli.targets import load_target
from headrace.errors import QueryError
from headrace.foreground import log_lines

_POLL_SECONDS = 0.2


@with_options
def serve(
    target: TargetName,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            help="Where to listen: host:port. Left out: application.server, or the first free "
            "port of this machine from 8080 to 8099.",
        ),
    ] = None,
    *,
    enable_admin: Annotated[
        bool, typer.Option("--enable-admin", help="Allow routes that write: /dlq/replay.")
    ] = False,
    session: Session,
    how: RunOptions,
    broker: BrokerOptions,
) -> None:
    """Answer queries of an application over HTTP until Ctrl-C; another process runs it."""
    app = application_of(load_target(target), how, broker)
    with extra_needed("Serving", "server"):
        from headrace.queries.server.server import FIRST_PORT, LAST_PORT
        from headrace.queries.service import QueryService
    address = server or app.config.application_server
    chosen = broker.repeated(app.config)
    if how.application_id is not None:
        chosen += f" -s application.id={how.application_id}"
    level = logging.WARNING if session.quiet else logging.INFO
    with broker.repeated_in_errors(app.config), log_lines(min(level, session.log_level)):
        service = QueryService(
            app.topology,
            app.config,
            server=address or f"127.0.0.1:{FIRST_PORT}",
            last_port=None if address else LAST_PORT,
            enable_admin=enable_admin,
        )
        with _signals() as stop:
            service.start()
            try:
                session.did(
                    f"Ask with `headrace stores {shlex.quote(target)} {chosen}`, "
                    f"or see {service.url}/docs.",
                    url=service.url,
                    application=app.config.application_id,
                )
                while not stop.wait(_POLL_SECONDS):
                    failure = service.failure()
                    if failure is not None:
                        msg = f"The instance at {service.url} has stopped: {failure}"
                        raise QueryError(msg) from failure
            finally:
                service.close()


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Return an event that SIGINT and SIGTERM set, for the time of a block."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
