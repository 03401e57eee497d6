"""When a batch may begin: at any time, or at an interval while there is no backlog."""

from __future__ import annotations

import time
from datetime import timedelta


class Interval:
    """Keeps the times at which batches may begin; the first one is now.

    Spark could keep them, but asks for nothing in between: what a batch has done would be told, and
    taken into account, an interval later.

    Args:
        trigger: The setting; other words than a length of time keep no batch waiting.
    """

    def __init__(self, trigger: str | timedelta) -> None:
        self._seconds = trigger.total_seconds() if isinstance(trigger, timedelta) else 0.0
        self._next = time.monotonic()

    def left(self) -> float:
        """Return how many seconds it is until a batch may begin; 0 if one may begin now."""
        return max(0.0, self._next - time.monotonic())

    def is_over(self) -> bool:
        """Return whether a batch may begin; if so, the next one may not before the next time."""
        if self.left():
            return False
        if self._seconds:
            # At full minutes and the like, as Spark does; a clock that is set changes one wait.
            self._next = time.monotonic() + self._seconds - time.time() % self._seconds
        return True

    def skip(self) -> None:
        """Let the next batch begin at once: the last one left records behind."""
        self._next = time.monotonic()
