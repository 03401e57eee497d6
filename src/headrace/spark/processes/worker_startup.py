"""Start Spark's Python processes quickly: from the fork server, and without pandas.

A query needs about ten Python processes before its first record. Each of them would import PySpark
from an archive without compiled files. Each that creates an Arrow array would import pandas, if it
is installed, because pyarrow checks for it.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from uuid import uuid4

import pyarrow as pa
import pyspark

from headrace.spark.processes import launcher
from headrace.spark.processes.fork_server import start_fork_server

_END_SECONDS = 5.0


@cache
def python_launcher() -> str:
    """Return the program that Spark starts as its Python: the launcher of the fork server.

    It uses the installed PySpark, not an archive. All applications of this process share it,
    because they share the Java that starts Python.
    """
    if os.name != "posix" or "zip" in str(pyspark.__file__):
        return sys.executable
    return str(_install_launcher(Path(mkdtemp(prefix="headrace-"))))


def _install_launcher(directory: Path) -> Path:
    """Start a fork server, write the launcher to a folder, and return its path."""
    search = os.pathsep.join(search_path())
    server, path = directory / "server", directory / "python"
    atexit.register(_end, start_fork_server(server, search), directory)
    command = [sys.executable, "-S", "-E", str(Path(launcher.__file__).resolve()), str(server)]
    path.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(search)} exec {shlex.join(command)} "$@"\n'
    )
    path.chmod(0o700)
    return path


@cache
def socket_directory() -> str | None:
    """Return a folder for Unix domain sockets between Java and Python; None if there can be none.

    Such a connection has no password, so only this user may open the folder.
    """
    for parent in dict.fromkeys((gettempdir(), "/tmp")):  # noqa: S108  # mkdtemp's name is random
        if not hasattr(socket, "AF_UNIX") or not os.access(parent, os.W_OK):
            continue
        directory = mkdtemp(prefix="headrace-", dir=parent)
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        if _can_bind(Path(directory) / f".{uuid4()}.sock"):  # the name that Spark chooses
            return directory
    return None


def restore_python_folders() -> list[Path]:
    """Recreate the folders of the launcher and of the sockets if they are gone; return them.

    Java knows their paths from its start, so they keep them.
    """
    restored = []
    if socket_directory.cache_info().currsize and (directory := socket_directory()) is not None:
        sockets = Path(directory)
        if not sockets.exists():
            sockets.mkdir(mode=0o700)
            restored.append(sockets)
    launcher_path = Path(python_launcher() if python_launcher.cache_info().currsize else os.devnull)
    if not launcher_path.exists():
        launcher_path.parent.mkdir(mode=0o700, exist_ok=True)
        _install_launcher(launcher_path.parent)
        restored.append(launcher_path.parent)
    return restored


def _can_bind(path: Path) -> bool:
    """Return whether a socket can have this path: it may be too long, or the disk a network's."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(str(path))
            path.unlink()
        except OSError:
            return False
    return True


def search_path() -> list[str]:
    """Return the module search path of workers: that of this process, so they find the user's."""
    return [str(Path(entry).resolve()) for entry in sys.path]


def _end(server: subprocess.Popen[bytes], directory: Path) -> None:
    assert server.stdin is not None, "started with a pipe"
    server.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        server.wait(_END_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)


@cache
def keep_pandas_out() -> None:
    """Keep pyarrow from importing pandas, unless the user's code has imported it.

    pyarrow checks once. A later import of pandas works.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas())
    try:
        pa.array([0])
    finally:
        del sys.meta_path[0]


class _NoPandas:
    """Finds everything but pandas."""

    def find_spec(self, name: str, _path: object, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
