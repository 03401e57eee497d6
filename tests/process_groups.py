"""Programs in process groups of their own, which Ctrl-C reaches as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def in_own_group(
    command: Sequence[str], folder: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a program; what is left of its group is killed after the block.

    Args:
        command: The program and its arguments.
        folder: Where it runs; here if left out.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
