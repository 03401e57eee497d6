"""``headrace example NAME`` as a user runs it: a process whose output a test reads as it comes."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.process_tree import ProcessTree
from tests.waiting import PATIENCE, await_that


class RunningExample:
    """A command in a process group of its own, which Ctrl-C reaches as a whole.

    Args:
        words: The words after ``headrace example``.
        on_terminal: Whether its output goes to a terminal; else to a pipe.
        folder: Where it runs; here if left out.
        program: The command before those words; by default that of this interpreter.
        environment: Variables, in addition to those of this process.
    """

    def __init__(
        self,
        *words: str,
        on_terminal: bool = False,
        folder: Path | None = None,
        program: Sequence[str] = (sys.executable, "-m", "headrace"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._output, inner = pty.openpty() if on_terminal else os.pipe()
        self.said = ""
        self.process = subprocess.Popen(
            [*program, "example", *words],
            stdin=subprocess.DEVNULL,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env={**_of_a_user(), **(environment or {})},
            start_new_session=True,
        )
        os.close(inner)

    def __enter__(self) -> RunningExample:
        return self

    def __exit__(self, *_: object) -> None:
        ProcessTree(self.process.pid).kill()
        self.process.wait()
        os.close(self._output)

    def read_until(self, pattern: str) -> re.Match[str]:
        """Read until the output has what is looked for, and return it."""

        def is_said() -> bool:
            if re.search(pattern, self.said):
                return True
            assert self._read_some(), f"ended without {pattern!r}:\n{self.said}"
            return False

        await_that(is_said, repr(pattern), found=lambda: self.said)
        found = re.search(pattern, self.said)
        assert found is not None
        return found

    def read_to_end(self) -> None:
        """Read what is left; a process of the example that outlives it would keep it open."""
        await_that(lambda: not self._read_some(), "the end of the output", found=lambda: self.said)

    def stopped(self) -> int:
        """Press Ctrl-C, read what is left, and return the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        """Read what is left, and return the exit code."""
        self.read_to_end()
        return self.process.wait(PATIENCE)

    def _read_some(self) -> bool:
        """Add what comes within a second; return whether more may come."""
        if not select.select([self._output], [], [], 1)[0]:
            return True
        try:
            read = os.read(self._output, 1 << 16)
        except OSError:  # Linux raises this if no process has the terminal open
            return False
        self.said += read.decode(errors="replace")
        return bool(read)


def _of_a_user() -> dict[str, str]:
    """Return the variables without the one that makes Python write each line at once."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
