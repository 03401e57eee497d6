"""A mail server for this machine, which shows its mails to a function."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Conversation(socketserver.StreamRequestHandler):
    """Speaks SMTP with one client."""

    server: MailServer

    def handle(self) -> None:
        self._answer("220 ready")
        while line := self.rfile.readline().decode().strip():
            if line.lower() == "data":
                self._answer("354 send it")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.on_mail(b"".join(lines).decode())
            self._answer("221 bye" if line.lower() == "quit" else "250 ok")
            if line.lower() == "quit":
                return

    def _answer(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class MailServer(socketserver.TCPServer):
    """Takes mails at an address, and gives each to a function."""

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], on_mail: Callable[[str], None]) -> None:
        self.on_mail = on_mail
        super().__init__(address, _Conversation)


@contextmanager
def mail_server(
    address: tuple[str, int], on_mail: Callable[[str], None]
) -> Iterator[tuple[str, int]]:
    """Run a mail server, for the time of a block; the block gets its address."""
    with MailServer(address, on_mail) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            host, port = server.server_address[:2]
            yield str(host), port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def printing_mails(address: tuple[str, int]) -> Iterator[None]:
    """Print the mails that arrive, for the time of a block."""
    with mail_server(address, lambda mail: print(mail, flush=True)):
        yield
