"""``make demo``, which is ``headrace example orders``, shows results until Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys

import pytest

from benchmarks.process_tree import ProcessTree
from tests.waiting import PATIENCE, await_that


class RunningDemo:
    """The demo as a user runs it, in a process group of its own, which Ctrl-C reaches as a whole.

    Args:
        on_terminal: Whether its output goes to a terminal; else to a pipe.
    """

    def __init__(self, *, on_terminal: bool) -> None:
        self._output, inner = pty.openpty() if on_terminal else os.pipe()
        self.said = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "example", "orders"],
            stdin=subprocess.DEVNULL,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)

    def __enter__(self) -> RunningDemo:
        return self

    def __exit__(self, *_: object) -> None:
        ProcessTree(self.process.pid).kill()
        self.process.wait()
        os.close(self._output)

    def read_until(self, pattern: str) -> None:
        """Read until the output has what is looked for."""

        def is_said() -> bool:
            if re.search(pattern, self.said):
                return True
            assert self._read_some(), self.said
            return False

        await_that(is_said, repr(pattern), found=lambda: self.said)

    def read_to_end(self) -> None:
        """Read what is left; a process of the demo that outlives it would keep it open."""
        await_that(lambda: not self._read_some(), "the end of the output", found=lambda: self.said)

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


@pytest.mark.nightly("demo")
@pytest.mark.parametrize(
    ("on_terminal", "results"),
    [
        (True, r"general-orders-revenue +store_\d+ +TotalRevenueWithAddress\("),
        (False, r" INFO running batch \d+ took \d+ ms  in \S+  out [1-9]"),
    ],
    ids=["terminal", "pipe"],
)
def test_the_demo_shows_results_until_ctrl_c_and_says_what_to_try_next(
    monkeypatch: pytest.MonkeyPatch, on_terminal: bool, results: str
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("HEADRACE_LOG_SUMMARY_INTERVAL", "1s")
    with RunningDemo(on_terminal=on_terminal) as demo:
        demo.read_until(results)
        os.killpg(demo.process.pid, signal.SIGINT)
        demo.read_to_end()

        assert demo.process.wait(PATIENCE) == 0

    ended = "NOT_RUNNING" if on_terminal else "went from PENDING_SHUTDOWN to NOT_RUNNING."
    shown, heading, next_steps = demo.said.replace("\r\n", "\n").partition("What to try next")
    assert ended in shown
    assert heading, demo.said
    assert "headrace example orders --trace" in next_steps
    # Neither Java nor Python says a word of its own; the only warning is about the broken order.
    assert not re.search(r"org\.apache|java\.|Py4J|\.scala|Traceback", demo.said)
    assert not re.search(r"WARN(?!ING Step 'KSTREAM-SOURCE-\d+'\s+skipped)", demo.said)
