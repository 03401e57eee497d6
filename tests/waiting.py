"""Waits for a condition, with a generous limit, and an error that names both states."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

PATIENCE = 200.0
"""How many seconds a busy machine may take for what a test waits for.

The run's own limit for each test is 600 s.
"""

PATIENTLY = timedelta(seconds=PATIENCE)
"""The same, for functions that take a duration and not seconds."""

_PAUSE_SECONDS = 0.02


def await_that(
    is_so: Callable[[], object],
    what: str,
    *,
    found: Callable[[], object] | None = None,
    seconds: float = PATIENCE,
) -> None:
    """Wait until a condition holds.

    Args:
        is_so: Tells whether it holds.
        what: Names what the test waits for.
        found: Tells what is there instead.
        seconds: The limit.

    Raises:
        AssertionError: The condition did not hold in time.
    """
    give_up = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > give_up:
            instead = "" if found is None else f"; found {found()}"
            raise AssertionError(f"waited {seconds:g} s in vain for {what}{instead}")
        time.sleep(_PAUSE_SECONDS)
