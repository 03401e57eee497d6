"""Prints the progress of a run of tests, and at its end the command that runs the failed ones.

pytest prints a dot for each test and nothing while one takes a minute. With ``--progress`` it
prints a line every few seconds instead: how many of how many, what runs, what has failed.
"""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_SECONDS_BETWEEN_LINES = 10
_MOST_IDS = 20
"""How many failed tests the command at the end names one by one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that replaces pytest's dots."""
    group = parser.getgroup("progress")
    group.addoption("--progress", action="store_true", help="print a line every few seconds")
    group.addoption("--times", type=Path, metavar="FILE", help="write the seconds of each folder")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Watch the run where its results come together."""
    if config.getoption("--progress") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "headrace-progress")


class Progress:
    """Prints lines about one run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        self._start = time.monotonic()
        self._total = 0
        self._done = 0
        self._failed: list[str] = []
        self._running: dict[str, float] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._is_over = threading.Event()
        threading.Thread(target=self._print_regularly, name="progress", daemon=True).start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Count the tests: each worker collects all of them."""
        self._total = len(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests of a run without workers."""
        self._total = self._total or len(session.items)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, tuple[str, str, str]]:
        """Print neither dots nor letters; pytest counts as ever."""
        category, _letter, word = yield
        return category, "", "" if category in ("", "passed") else word

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember what runs."""
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Forget it."""
        self._running.pop(nodeid, None)
        self._done += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count seconds by folder, and print a failure at once."""
        self._seconds[_folder(report.nodeid)] += report.duration
        if report.failed and report.nodeid not in self._failed:
            self._failed.append(report.nodeid)
            self._print(f"FAILED {report.nodeid}")

    def pytest_sessionfinish(self) -> None:
        """Stop, and write the times for the caller."""
        self._is_over.set()
        if path := self._config.getoption("--times"):
            path.write_text(
                json.dumps(dict(sorted(self._seconds.items(), key=lambda each: -each[1])))
            )

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self) -> None:
        """Print the command that runs the failed tests alone."""
        if not self._failed:
            return
        words = self._failed if len(self._failed) <= _MOST_IDS else ["--last-failed"]
        tier = self._config.getoption("--tier")
        command = shlex.join([".venv/bin/pytest", "--tier", tier, *words])
        self._print(f"Run the failed tests alone:\n  {command}")

    def _print_regularly(self) -> None:
        while not self._is_over.wait(_SECONDS_BETWEEN_LINES):
            failed = f", {len(self._failed)} failed" if self._failed else ""
            running = " and ".join(map(self._described, sorted(self._running.items())))
            self._print(
                f"{_minutes(time.monotonic() - self._start)} {self._done:,} of {self._total:,} "
                f"tests{failed}; running {running or 'nothing yet'}"
            )

    def _described(self, started: tuple[str, float]) -> str:
        """Return the file of a test, or its name if it takes long."""
        nodeid, start = started
        seconds = time.monotonic() - start
        file, _, _ = nodeid.partition("::")
        return file if seconds < _SECONDS_BETWEEN_LINES else f"{nodeid} for {seconds:.0f} s"

    def _print(self, line: str) -> None:
        self._terminal.ensure_newline()
        self._terminal.write_line(line)


def _minutes(seconds: float) -> str:
    return "{}:{:02}".format(*divmod(int(seconds), 60))


def _folder(nodeid: str) -> str:
    """Return the folder of a test below ``tests``, or its file if it lies in none."""
    return nodeid.partition("::")[0].removeprefix("tests/").partition("/")[0].removesuffix(".py")
