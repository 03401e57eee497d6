"""The clock of batches: one time of day per batch, which never goes back."""

from __future__ import annotations

import time

from headrace.runtime.batches import BatchBoundary
from headrace.runtime.run_files import Control


class BatchClock:
    """Gives each batch its time of day, in milliseconds."""

    def __init__(self) -> None:
        self._is_stopped = False

    def stop(self) -> None:
        """Give all later batches the time of the last one.

        A query that ends with the current records would never end otherwise: a schedule that is
        shorter than a batch is due again after each batch.
        """
        self._is_stopped = True

    def read(self, start: BatchBoundary, control: Control) -> int:
        """Return the time of the batch that begins at ``start``."""
        if self._is_stopped:
            return start.clock
        now = time.time_ns() // 1_000_000 if control.clock is None else control.clock
        return max(now, start.clock)
