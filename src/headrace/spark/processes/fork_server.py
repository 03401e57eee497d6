"""The fork server: a Python that has imported everything, and forks Spark's Python processes.

A query starts about ten Python processes one after the other before its first record. Each would
import PySpark, pyarrow and the engine. A forked process starts in milliseconds, and shares memory.

Measured from `start` to the end of a query over 100 records, on two busy cores, alternating, three
runs each: 16 to 19 s with the fork server, 29 to 33 s with a plain Python and the same search path.
"""

from __future__ import annotations

import array
import gc
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

_MODULES = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "headrace",
    "headrace.spark.sink",
    "headrace.spark.source",
    "headrace.spark.task_host",
)
_SINGLE_THREADED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""A fork has no threads of libraries, but may inherit the locks that they held."""
_REQUEST_SECONDS = 5.0
_LOOK_SECONDS = 0.05
TERM_SECONDS = 3.0
"""How long a fork may take to end after a SIGTERM, before it is killed."""
_OPTIONAL_MODULES = ("confluent_kafka", "headrace.brokers.kafka")


def start_fork_server(
    path: Path, search: str, term_seconds: float = TERM_SECONDS
) -> subprocess.Popen[bytes]:
    """Start the fork server; it and its forks end with this process.

    ``search`` is the ``PYTHONPATH``. A fork ends at most ``term_seconds`` after a SIGTERM.
    """
    # Spark sets the hash seed of its workers, so that sets have the same order in all of them.
    environment = os.environ | {"PYTHONPATH": search, "PYTHONHASHSEED": "0"} | _SINGLE_THREADED
    given = [str(path), str(term_seconds)]
    return subprocess.Popen(  # noqa: S603  # this Python
        [sys.executable, "-m", "headrace.spark.processes.fork_server", *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        process_group=0,  # Ctrl-C on the terminal is for the driver alone
    )


def main(path: str, term_seconds: float) -> None:
    """Import everything, then fork until standard input ends."""
    import_everything()
    gc.collect()
    gc.freeze()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    Path(path).chmod(0o600)
    server.listen(64)
    forks = Forks(term_seconds)
    serve(server, forks)
    server.close()
    forks.end_all()


def import_everything() -> None:
    """Import the modules that Spark's Python processes import."""
    for name in _MODULES:
        import_module(name)
    for name in _OPTIONAL_MODULES:
        with suppress(ModuleNotFoundError):
            import_module(name)


class Forks:
    """The forks that run, and the connections of their launchers.

    A fork whose launcher has ended gets a SIGTERM. It may handle that, and hang; so it is killed if
    it does not end in ``term_seconds``.
    """

    def __init__(self, term_seconds: float) -> None:
        self._term_seconds = term_seconds
        self.connections: dict[int, socket.socket] = {}
        """The connection of each launcher, by the process id of its fork."""
        self._ending: dict[int, float] = {}
        """When to kill the forks that got a SIGTERM."""

    def end(self, pid: int) -> None:
        """End a fork."""
        os.kill(pid, signal.SIGTERM)
        self.connections.pop(pid).close()
        self._ending[pid] = time.monotonic() + self._term_seconds

    def end_all(self) -> None:
        """End all forks; return when they have ended."""
        for pid in list(self.connections):
            self.end(pid)
        while self._ending:
            self.look()
            time.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Report forks that have ended to their launchers, and kill those that do not end."""
        for pid, deadline in self._ending.items():
            if time.monotonic() >= deadline:
                os.kill(pid, signal.SIGKILL)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ending.pop(pid, None)
            connection = self.connections.pop(pid, None)
            if connection is not None:
                code = os.waitstatus_to_exitcode(status)
                with suppress(OSError):  # its launcher may have ended
                    connection.sendall(bytes([code & 0xFF]))
                connection.close()


def serve(server: socket.socket, forks: Forks) -> None:
    """Fork for each connection, and send the exit code when the fork has ended."""
    while True:
        watched: list[Any] = [0, server, *forks.connections.values()]
        ready, _, _ = select.select(watched, [], [], _LOOK_SECONDS)
        if 0 in ready and not os.read(0, 1):
            return  # the driver is gone
        for pid, connection in list(forks.connections.items()):
            if connection in ready:  # a launcher sends one request: this one has ended
                forks.end(pid)
        if server in ready:
            connection, _ = server.accept()
            connection.settimeout(_REQUEST_SECONDS)
            try:
                pid = _fork(server, connection, list(forks.connections.values()))
            except (OSError, ValueError):  # the launcher ended before its request was complete
                connection.close()
            else:
                forks.connections[pid] = connection
        forks.look()


def _fork(server: socket.socket, connection: socket.socket, others: list[socket.socket]) -> int:
    request, handles = _receive(connection)
    pid = os.fork()
    if pid == 0:
        for inherited in (server, connection, *others):
            inherited.close()
        _run_module(request, handles)
    for handle in handles:
        os.close(handle)
    return pid


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    room = socket.CMSG_LEN(3 * array.array("i").itemsize)
    size, ancillary, _, _ = connection.recvmsg(4, room)
    handles = array.array("i")
    for _, _, data in ancillary:
        handles.frombytes(data)
    length = int.from_bytes(size, "big")
    data = b""
    while len(data) < length and (received := connection.recv(length - len(data))):
        data += received
    request: dict[str, Any] = json.loads(data)
    return request, list(handles)


def _run_module(request: dict[str, Any], handles: list[int]) -> NoReturn:
    """Run a module in this process, as ``python -m`` would."""
    code = 1
    try:
        for number, handle in enumerate(handles):
            os.dup2(handle, number)
            os.close(handle)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        random.seed()
        module, *arguments = request["module"]
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            pass
        os._exit(code & 0xFF)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
