"""Ends a test that hangs, and shows the stacks of all processes that it involves.

pytest-timeout decides how long a test may take (``timeout`` in ``pyproject.toml``, or a mark). Then
a signal handler collects the stacks and fails the test with them. A test that is stuck in native
code runs no signal handler: a thread ends its process, with the stacks on standard error.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

import pytest

from tests.stacks import stacks_below

_GRACE_SECONDS = 120
"""How long the handler may take to collect stacks, and the test to unwind."""


class TimeLimits:
    """Watches the tests of one process, one after the other."""

    def __init__(self) -> None:
        self._stderr = os.dup(2)  # pytest has not captured it yet
        self._name = ""
        self._deadline = float("inf")
        self._thread: threading.Thread | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> bool:
        """Watch a test in place of pytest-timeout, which shows the stacks of one process alone."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="time limits", daemon=True)
            self._thread.start()

        def fail(_signal: int, _frame: FrameType | None) -> None:
            stacks = stacks_below(os.getpid())
            item.add_report_section("call", "stacks of all processes", stacks)
            pytest.fail(f"The test took longer than its limit of {settings.timeout:g} s.")

        self._name = item.nodeid
        self._deadline = time.monotonic() + settings.timeout + _GRACE_SECONDS
        signal.signal(signal.SIGALRM, fail)
        signal.setitimer(signal.ITIMER_REAL, settings.timeout)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> bool:
        """Stop watching: the test has ended."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self._deadline = float("inf")
        return True

    def _watch(self) -> None:
        while time.monotonic() < self._deadline:
            time.sleep(1)
        stacks = stacks_below(os.getpid())
        os.write(self._stderr, f"\n{self._name} hangs in native code.\n{stacks}\n".encode())
        os._exit(1)


def pytest_configure(config: pytest.Config) -> None:
    """Watch every test."""
    config.pluginmanager.register(TimeLimits(), "headrace-time-limits")
