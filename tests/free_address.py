"""Addresses for servers that tests start."""

from __future__ import annotations

import socket


def free_address() -> str:
    """Return an address of this machine at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"
