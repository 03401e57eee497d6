"""Coverage pauses in tests of which there are many: without it they take a third of the time.

Other tests reach the lines that these run. Each worker saves its counts at the end of its session:
pytest-xdist kills a worker that takes longer than ten seconds to exit.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from typing import Any

import pytest
from coverage import Coverage

UNMEASURED = (
    "tests/brokers/test_embedded_processes.py",  # each fork would save what its worker counted
    "tests/chaos/test_checks.py",
    "tests/chaos/test_faults.py",
    "tests/chaos/test_model.py",
    "tests/chaos/test_oracle.py",
    "tests/chaos/test_queries_model.py",
    "tests/chaos/test_replays.py",
    "tests/conformance/",
    "tests/harness/",
    "tests/meta/",
    "tests/property/",
    "tests/runtime/test_batches.py",
    "tests/runtime/test_changelogs.py",
    "tests/runtime/test_fuzzed_bytes.py",
    "tests/runtime/test_in_process.py",
    "tests/typing/",
    "tests/unit/queries/server/test_any_request.py",
    "tests/unit/queries/test_coordination_model.py",
    "tests/unit/queries/test_model.py",
    "tests/unit/runtime/test_state_costs.py",
    "tests/unit/test_benchmarks.py",
)
"""Folders and files of such tests."""
_UNMEASURED_HOST = "[runtime"
"""Tests of behaviour run on the driver, too."""
_FOR_CHILDREN = "COVERAGE_PROCESS_CONFIG"
"""The variable that starts coverage in child processes."""


class Measuring:
    """Stops and starts coverage between the tests of one process."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._is_paused = False
        self._tracers = sys.gettrace(), threading.gettrace()
        self._config = os.environ.get(_FOR_CHILDREN)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Pause before such a test, and resume before the next other one."""
        if is_unmeasured(item.nodeid) != self._is_paused:
            self.change()
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Save what was counted."""
        self._coverage.save()

    def change(self) -> None:
        """Pause, or resume."""
        self._is_paused = not self._is_paused
        own, others = (None, None) if self._is_paused else self._tracers
        sys.settrace(own)
        threading.settrace(others)
        if self._is_paused:
            os.environ.pop(_FOR_CHILDREN, None)
        elif self._config is not None:
            os.environ[_FOR_CHILDREN] = self._config


def is_unmeasured(nodeid: str) -> bool:
    """Return whether coverage pauses in a test."""
    is_hosted = nodeid.startswith("tests/behaviour/") and _UNMEASURED_HOST in nodeid
    return is_hosted or nodeid.startswith(UNMEASURED)


def pytest_configure(config: pytest.Config) -> None:
    """Pause and save in each process that runs tests under coverage."""
    coverage = Coverage.current()
    worker = getattr(config, "workerinput", {}).get("workerid")
    if coverage is not None and (worker or not config.getoption("-n", None)):
        measuring = Measuring(coverage)
        config.pluginmanager.register(measuring, "headrace-measuring")
        if worker not in (None, "gw0"):
            measuring.change()  # each worker imports all tests: one that counts is enough
