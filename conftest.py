"""Loads the plugins of these tests, and Headrace's own one, whose imports coverage sees here."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

pytest_plugins = [
    "headrace.testing.pytest_plugin",
    "tests.measuring",
    "tests.progress",
    "tests.tiers",
    "tests.time_limits",
]


@pytest.fixture(autouse=True)
def _log_of_headrace() -> Iterator[None]:
    """Restore the logger after each test: some programs and pages configure logging."""
    log = logging.getLogger("headrace")
    level, log_state, handlers = log.level, (log.propagate, log.disabled), log.handlers[:]
    yield
    log.setLevel(level)
    log.propagate, log.disabled = log_state
    log.handlers[:] = handlers
