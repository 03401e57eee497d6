"""Find files of the user that workers would import in place of modules of Python's library.

Workers search the folders of the driver first. The driver itself may not notice a file ``json.py``
beside the program, because it has imported Python's `json` before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from itertools import takewhile
from pathlib import Path

from headrace.errors import UnshippableError
from headrace.spark.processes.worker_startup import search_path

_STDLIB = Path(sysconfig.get_path("stdlib")).resolve()
_LIBRARY = (str(_STDLIB), str(_STDLIB / "lib-dynload"))
_PRINT_IMPORTED = """\
import sys
from headrace.spark.processes.fork_server import import_everything
import_everything()
print(*sys.stdlib_module_names.intersection(sys.modules))
"""


def check_module_names() -> None:
    """Raise `UnshippableError` if workers would import a user's file for a module of Python."""
    if "PYSPARK_PYTHON" in os.environ:
        return  # the search path of that Python is not known here
    files = _files_in([*takewhile(lambda entry: entry != _LIBRARY[0], search_path())])
    if not files:
        return
    for name in sorted(files.keys() & _imported_by_workers()):
        raise UnshippableError(
            None,
            origin=None,
            reason=f"they would import {files[name]!r} in place of Python's own module {name!r}",
            remedy="Rename it.",
        )


def _files_in(folders: list[str]) -> dict[str, str]:
    """Return the files in folders that have the names of Python's own modules."""
    found = {
        name: spec.origin
        for name in sys.stdlib_module_names
        if (spec := PathFinder.find_spec(name, folders)) is not None
        and spec.origin is not None
        and BuiltinImporter.find_spec(name) is None
        and FrozenImporter.find_spec(name) is None
    }
    return {name: file for name, file in found.items() if not _is_imported(name, file)}


def _is_imported(name: str, file: str) -> bool:
    imported = getattr(sys.modules.get(name), "__file__", None)
    return imported is not None and Path(imported).resolve() == Path(file).resolve()


def _imported_by_workers() -> set[str]:
    """Return the modules of Python's library that workers import; none if Python fails."""
    search = os.pathsep.join([*_LIBRARY, *search_path()])
    done = subprocess.run(  # noqa: S603  # this Python
        [sys.executable, "-P", "-c", _PRINT_IMPORTED],
        env=os.environ | {"PYTHONPATH": search},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return set(done.stdout.split())
