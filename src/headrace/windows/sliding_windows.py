"""Windows that end or begin at a record: every pair of records close enough shares one."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.durations import Duration, duration_text
from headrace.windows.lengths import check_retention, length_ms


@dataclass(frozen=True, init=False, repr=False)
class SlidingWindows:
    """Windows of one length whose place the records decide; both bounds are included.

    A record at t has the window that ends with it, and the one that begins right after it once
    another record lies there. With a difference of 10::

        t-10        t           t+11
         ├──────────┤├──────────┤

    Args:
        time_difference: The largest difference of two timestamps in one window.
        grace: How long after its end a window still takes late records.

    Raises:
        TopologyError: A length is negative.
    """

    time_difference_ms: int
    """The largest difference of two timestamps in one window."""
    grace_ms: int
    """How long after its end a window still takes late records."""

    def __init__(self, time_difference: Duration, *, grace: Duration = 0) -> None:
        difference_ms = length_ms(
            time_difference, windows="SlidingWindows", what="time_difference", at_least=0
        )
        grace_ms = length_ms(grace, windows="SlidingWindows", what="grace", at_least=0)
        check_retention(
            2 * difference_ms + grace_ms,
            windows="SlidingWindows",
            of="twice the `time_difference` and the `grace`",
        )
        object.__setattr__(self, "time_difference_ms", difference_ms)
        object.__setattr__(self, "grace_ms", grace_ms)

    def __repr__(self) -> str:
        difference = duration_text(self.time_difference_ms)
        return f"SlidingWindows({difference!r}, grace={duration_text(self.grace_ms)!r})"

    @property
    def size_ms(self) -> int:
        """The length of a window: its end is its start plus this."""
        return self.time_difference_ms

    @property
    def retention_ms(self) -> int:
        """Return how long a window must be kept from its start on, as its neighbours need it."""
        return 2 * self.time_difference_ms + self.grace_ms
