"""A Python that has imported everything, and makes copies of itself for Spark.

A query starts about ten Python processes one after the other before its first record, and each
would import PySpark, pyarrow and the engine: most of the time to the first result. Copies of a
process that has done so start in milliseconds, and share its memory.
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
_NO_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""A copy has none of the threads that libraries started, but may have the locks they held."""
_SECONDS_TO_ASK = 5.0
_ALSO = ("confluent_kafka", "headrace.brokers.kafka")
"""What may be missing."""


def start_warm_python(path: Path, search: str) -> subprocess.Popen[bytes]:
    """Start the process; it ends with this one.

    Args:
        path: Where it listens.
        search: Where it finds modules, as ``PYTHONPATH``.
    """
    # As Spark sets it for its workers, so that sets have the same order in all of them.
    environment = os.environ | {"PYTHONPATH": search, "PYTHONHASHSEED": "0"} | _NO_THREADS
    return subprocess.Popen(  # noqa: S603  # this Python
        [sys.executable, "-m", "headrace.spark.processes.fork_server", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        process_group=0,  # Ctrl-C on the terminal is for the driver alone
    )


def main(path: str) -> None:
    """Import everything, then make copies until standard input ends."""
    import_everything()
    gc.collect()
    gc.freeze()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    Path(path).chmod(0o600)
    server.listen(64)
    serve(server)


def import_everything() -> None:
    """Import what Spark's Python processes do."""
    for name in _MODULES:
        import_module(name)
    for name in _ALSO:
        with suppress(ModuleNotFoundError):
            import_module(name)


def serve(server: socket.socket) -> None:
    """Make a copy for each connection, and tell its exit code when it has ended."""
    copies: dict[int, socket.socket] = {}
    while True:
        watched: list[Any] = [0, server, *copies.values()]
        ready, _, _ = select.select(watched, [], [], 0.05)
        if 0 in ready and not os.read(0, 1):
            return  # the driver is gone
        for pid, connection in list(copies.items()):
            if connection in ready:  # nothing more is ever sent: its launcher is gone
                os.kill(pid, signal.SIGTERM)
                copies.pop(pid).close()
        if server in ready:
            connection, _ = server.accept()
            connection.settimeout(_SECONDS_TO_ASK)
            try:
                pid = _copy(server, connection, list(copies.values()))
            except (OSError, ValueError):  # it ended before it had said what it wants
                connection.close()
            else:
                copies[pid] = connection
        _tell_ended(copies)


def _tell_ended(copies: dict[int, socket.socket]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        connection = copies.pop(pid, None)
        if connection is not None:
            code = os.waitstatus_to_exitcode(status)
            with suppress(OSError):  # nobody may wait for it
                connection.sendall(bytes([code & 0xFF]))
            connection.close()


def _copy(server: socket.socket, connection: socket.socket, others: list[socket.socket]) -> int:
    asked, handles = _received(connection)
    pid = os.fork()
    if pid == 0:
        for each in (server, connection, *others):
            each.close()
        _become(asked, handles)
    for handle in handles:
        os.close(handle)
    return pid


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    room = socket.CMSG_LEN(3 * array.array("i").itemsize)
    size, ancillary, _, _ = connection.recvmsg(4, room)
    handles = array.array("i")
    for _, _, data in ancillary:
        handles.frombytes(data)
    wanted = int.from_bytes(size, "big")
    received = b""
    while len(received) < wanted and (some := connection.recv(wanted - len(received))):
        received += some
    asked: dict[str, Any] = json.loads(received)
    return asked, list(handles)


def _become(asked: dict[str, Any], handles: list[int]) -> NoReturn:
    """Run a module in this process, as ``python -m`` would."""
    code = 1
    try:
        for number, handle in enumerate(handles):
            os.dup2(handle, number)
            os.close(handle)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["directory"])
        random.seed()
        module, *arguments = asked["module"]
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
    main(sys.argv[1])
