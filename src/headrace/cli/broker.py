"""``headrace broker``: a Kafka broker on this machine, for trials and tests."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.session import Session, with_options
from headrace.errors import BrokerError
from headrace.testing.kafka.jars import VERSION, are_fetched
from headrace.testing.kafka.starting import LASTING, start_broker


@with_options
def broker(
    *,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65_535, help="The port on 127.0.0.1.")
    ] = 9092,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Keeps the topics; left out: they are deleted at the end."),
    ] = None,
    session: Session,
) -> None:
    """Run a Kafka broker on 127.0.0.1 until Ctrl-C. It needs Java 17, and Maven the first time."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _check_free(port)
        fetches = "" if are_fetched() else "(Maven fetches it, once) "
        with _dots(session, f"Starting Kafka {VERSION} on 127.0.0.1:{port} {fetches}"):
            running = start_broker(folder, port=port, java_options=LASTING)
        with running:
            session.did(
                f"Kafka {VERSION} listens on {running.address}, data in {running.folder}.\n"
                "Stop it with Ctrl-C.",
                bootstrap_servers=running.address,
                folder=str(running.folder),
                process=running.pid,
            )
            try:
                code = running.wait()
            except KeyboardInterrupt:
                running.stop()
                code = 0
    except KeyboardInterrupt:
        code = 0  # it was still starting, or stops too slowly
    if code:
        raise typer.Exit(code)


@contextmanager
def _dots(session: Session, text: str) -> Iterator[None]:
    """Print a text, and a dot every second while the block runs."""
    if session.quiet or session.is_json:
        yield
        return
    ended = threading.Event()

    def print_dots() -> None:
        while not ended.wait(1):
            typer.echo(".", nl=False)

    typer.echo(text, nl=False)
    printer = threading.Thread(target=print_dots, daemon=True)
    printer.start()
    try:
        yield
    finally:
        ended.set()
        printer.join()
        typer.echo()


def _check_free(port: int) -> None:
    """Refuse a port that is in use: its owner would be taken for the new broker."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            msg = (
                f"Port {port} of 127.0.0.1 cannot be used: {error.strerror}. If a broker runs "
                "there already, use or stop that one; or choose another port with `--port`."
            )
            raise BrokerError(msg) from error
