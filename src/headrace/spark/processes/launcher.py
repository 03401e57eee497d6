"""What Spark starts when it wants a Python: asks the warm one for a copy, or starts a cold one.

Run by path, without `site`, so that it costs a few milliseconds:
``python -S -E launcher.py SOCKET -m MODULE …``. Imports the standard library alone.
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
    """Let a warm Python run a module, and return its exit code; or become a cold one."""
    path, *rest = arguments
    if rest[:1] == ["-m"]:
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(_SECONDS_TO_CONNECT)
            connection.connect(path)
            return _run_warm(connection, rest[1:])
        except OSError:
            pass  # no warm one: it has ended, or was never there
    return os.execv(sys.executable, [sys.executable, *rest])  # noqa: S606  # what Spark asked for


def _run_warm(connection: socket.socket, module: list[str]) -> int:
    asked = {"module": module, "environment": dict(os.environ), "directory": os.getcwd()}  # noqa: PTH109
    data = json.dumps(asked).encode()
    handles = array.array("i", [0, 1, 2])
    connection.sendmsg(
        [len(data).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)]
    )
    connection.sendall(data)
    connection.settimeout(None)
    # Whoever ends this process closes the connection, which ends the copy.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = connection.recv(1)
    return code[0] if code else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
