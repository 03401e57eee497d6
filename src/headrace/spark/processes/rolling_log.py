"""The log of Spark's Java, rolled over before it fills the disk.

Java and its workers also print to this file, and keep it open. If log4j renamed it, they would
write to the old one. So this module copies the file and truncates it. All of them append, so their
next line is at its beginning.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_LARGEST_BYTES = 10_000_000
_KEPT = 4
_SECONDS = 1.0


def keep_rolling(log_file: Path) -> None:
    """Roll a log over whenever it is too large, for as long as this process runs."""
    roll = partial(_roll_forever, log_file)
    threading.Thread(target=roll, name="headrace-spark-log", daemon=True).start()


def _roll_forever(log_file: Path) -> None:
    while True:
        time.sleep(_SECONDS)
        roll_over(log_file)


def roll_over(log_file: Path) -> None:
    """Copy the end of a log that is too large to ``<name>.1``, and truncate it.

    Older copies become ``.2`` to ``.4``. Lines between the copy and the truncation are lost.
    """
    with suppress(OSError):  # there is none, no room, or another process does it
        if log_file.stat().st_size > _LARGEST_BYTES:
            with log_file.open("r+b") as log:
                if fcntl is not None:
                    fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _roll(log, log_file)


def _roll(log: BinaryIO, log_file: Path) -> None:
    size = os.fstat(log.fileno()).st_size
    if size <= _LARGEST_BYTES:
        return
    copy, *old = [log_file.with_name(f"{log_file.name}.{n}") for n in ("new", *range(1, _KEPT + 1))]
    log.seek(size - _LARGEST_BYTES)
    with copy.open("wb") as file:
        copy.chmod(0o600)  # it holds the output of the user's functions
        shutil.copyfileobj(log, file)
    log.truncate(0)
    for newer, older in reversed([*zip([copy, *old], old, strict=False)]):
        with suppress(FileNotFoundError):
            newer.replace(older)


def read_since(log_file: Path, size: int) -> str:
    """Return the text after the first ``size`` bytes of a log; all if it was rolled over since."""
    data = log_file.read_bytes()
    return data[size if size <= len(data) else 0 :].decode(errors="replace")
