"""The client of the fork server: Spark runs it as its Python.

It starts in a few milliseconds, because it is run by its path and without `site`, and imports the
standard library alone: ``python -S -E launcher.py SOCKET -m MODULE …``. `fork_server` has the
figure of both.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import sys

_SECONDS_TO_CONNECT = 5.0


def main(arguments: list[str]) -> int:
    """Run a module in a fork, and return its exit code; without a fork server, become Python."""
    path, *rest = arguments
    if rest[:1] == ["-m"]:
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(_SECONDS_TO_CONNECT)
            connection.connect(path)
            return _run_in_fork(connection, rest[1:])
        except OSError:
            pass  # there is no fork server, or it has ended
    return os.execv(sys.executable, [sys.executable, *rest])  # noqa: S606  # what Spark asked for


def _run_in_fork(connection: socket.socket, module: list[str]) -> int:
    request = {"module": module, "environment": dict(os.environ), "directory": os.getcwd()}  # noqa: PTH109
    data = json.dumps(request).encode()
    handles = array.array("i", [0, 1, 2])
    connection.sendmsg(
        [len(data).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)]
    )
    connection.sendall(data)
    connection.settimeout(None)
    # The end of this process closes the connection, and that ends the fork.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = connection.recv(1)
    return code[0] if code else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
