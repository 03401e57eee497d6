"""Let Spark's Python processes start quickly, without what nobody asked for.

A query needs about ten Python processes before its first record. Each of them would import PySpark
from an archive without compiled files, and each that makes an Arrow array would import pandas,
because pyarrow looks whether it is there.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pyspark

from headrace.spark.processes import launcher
from headrace.spark.processes.fork_server import start_warm_python

_SECONDS_TO_END = 5.0


@cache
def python_launcher() -> str:
    """Return a program that starts Pythons with the modules of this process, from a warm one.

    PySpark is taken as it is installed, not from archives. There is one for all applications of
    this process, because they share Java, which starts the others.
    """
    if os.name != "posix" or "zip" in str(pyspark.__file__):
        return sys.executable
    search = os.pathsep.join(search_path())
    directory = Path(mkdtemp(prefix="headrace-"))
    listens, path = directory / "warm", directory / "python"
    atexit.register(_end, start_warm_python(listens, search), directory)
    command = [sys.executable, "-S", "-E", str(Path(launcher.__file__).resolve()), str(listens)]
    path.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(search)} exec {shlex.join(command)} "$@"\n'
    )
    path.chmod(0o700)
    return str(path)


def search_path() -> list[str]:
    """Return where workers find modules: the user's must be found where the driver found them."""
    return [str(Path(entry).resolve()) for entry in sys.path]


def _end(warm: subprocess.Popen[bytes], directory: Path) -> None:
    assert warm.stdin is not None, "started with a pipe"
    warm.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        warm.wait(_SECONDS_TO_END)
    shutil.rmtree(directory, ignore_errors=True)


@cache
def keep_pandas_out() -> None:
    """Let pyarrow believe that there is no pandas, unless the user's code has imported it.

    It looks once, and remembers. Importing pandas later works as ever.
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
