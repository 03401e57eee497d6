"""The clock of batches: one time of day per batch, which never goes back within one process.

It follows the system clock as long as that is at most a minute ahead of the monotonic clock.

A replay has the clock that its batch boundary recorded. Run `make nightly PART=cuts` after a change
here.
"""

from __future__ import annotations

import logging
import time

from headrace.runtime.batches import BatchBoundary
from headrace.runtime.run_files import Control

_log = logging.getLogger("headrace")

_MAX_JUMP_MS = 60_000
"""How far the system clock may run ahead of the monotonic clock."""
_HOLD_SECONDS = 60.0
"""How long a system clock that jumped further must hold before batches follow it."""
_HOLD_MS = 5_000
"""How much a clock that holds may differ from the monotonic clock meanwhile."""


class BatchClock:
    """Gives each batch its time of day, in milliseconds.

    The first reading is the system clock, even if the last batch of the checkpoint has a later
    time: a system clock that was wrong for a moment must not stop wall-clock time for days.
    """

    def __init__(self) -> None:
        self._is_stopped = False
        self._latest: int | None = None
        """The latest time that was given out."""
        self._anchor: tuple[int, float] | None = None
        """The time of both clocks at the first reading, or when a jump had held."""
        self._ahead = 0
        """How far the last accepted reading was ahead of the monotonic clock."""
        self._jump: tuple[int, float] | None = None
        """How far the system clock is ahead, and since when by the monotonic clock."""
        self._has_warned = False

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
        if control.clock is None:
            now = self._read_system_clock(start)
        else:
            now, self._anchor = control.clock, None
        self._latest = now if self._latest is None else max(now, self._latest)
        return self._latest

    def _read_system_clock(self, start: BatchBoundary) -> int:
        now, ticks = time.time_ns() // 1_000_000, time.monotonic()
        if self._anchor is None:
            if start.clock - now > _MAX_JUMP_MS:
                self._warn(
                    "The system clock is %d s behind the last batch. Wall-clock schedules keep "
                    "their due times.",
                    (start.clock - now) // 1000,
                )
            self._set_anchor(now, ticks)
            return now
        anchor, anchored_at = self._anchor
        expected = anchor + int((ticks - anchored_at) * 1000)
        # Counted from the anchor, because small jumps, or a clock that runs too fast, add up.
        ahead = now - expected
        if ahead <= _MAX_JUMP_MS:
            self._ahead, self._jump = ahead, None
        elif self._has_held(ahead, ticks):
            self._set_anchor(now, ticks)
        else:
            return expected + self._ahead
        return now

    def _set_anchor(self, now: int, ticks: float) -> None:
        self._anchor, self._ahead, self._jump = (now, ticks), 0, None

    def _has_held(self, ahead: int, ticks: float) -> bool:
        """Return whether the system clock has been that far ahead for long enough."""
        if self._jump is None or abs(ahead - self._jump[0]) > _HOLD_MS:
            self._jump = (ahead, ticks)
            self._warn(
                "The system clock is ahead by %d s. Batches follow it if it holds for %d s.",
                ahead // 1000,
                int(_HOLD_SECONDS),
            )
        return ticks - self._jump[1] >= _HOLD_SECONDS

    def _warn(self, message: str, *facts: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(message, *facts)
