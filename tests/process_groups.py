"""Programs in process groups of their own, which Ctrl-C reaches as a whole."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.process_tree import ProcessTree


@contextmanager
def in_own_group(
    command: Sequence[str], folder: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a program in a session of its own; what is left of that is killed after the block.

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
        ProcessTree(process.pid).kill()
        process.communicate()
