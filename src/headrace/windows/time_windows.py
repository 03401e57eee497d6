"""Windows of one size, aligned to the epoch: tumbling and hopping."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.durations import Duration, duration_text
from headrace.errors import TopologyError
from headrace.windows.lengths import check_retention, length_ms
from headrace.windows.window import Window


@dataclass(frozen=True, init=False, repr=False)
class TimeWindows:
    """Windows of one size: tumbling, or hopping if ``advance`` is less than the size.

    Each window includes its start and excludes its end. With size 10 and advance 5::

        0         10        20
        ├─────────┤
             ├─────────┤
                  ├─────────┤

    Args:
        size: The length of a window.
        advance: How far the next window starts after the one before; the size if left out.
        grace: How long after its end a window still takes late records.

    Raises:
        TopologyError: The size is not positive, the advance is not in ``0 < advance <= size``, or
            the grace is negative.
    """

    size_ms: int
    """The length of a window."""
    advance_ms: int
    """How far apart two windows start."""
    grace_ms: int
    """How long after its end a window still takes late records."""

    def __init__(
        self, size: Duration, *, advance: Duration | None = None, grace: Duration = 0
    ) -> None:
        size_ms = length_ms(size, windows="TimeWindows", what="size", at_least=1)
        advance_ms = size_ms
        if advance is not None:
            advance_ms = length_ms(advance, windows="TimeWindows", what="advance", at_least=1)
        grace_ms = length_ms(grace, windows="TimeWindows", what="grace", at_least=0)
        if advance_ms > size_ms:
            msg = (
                f"TimeWindows: `advance` is {advance!r}, which is more than the `size` {size!r} "
                f"and would leave gaps. Use at most the size."
            )
            raise TopologyError(msg)
        check_retention(size_ms + grace_ms, windows="TimeWindows", of="`size` and `grace` together")
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "advance_ms", advance_ms)
        object.__setattr__(self, "grace_ms", grace_ms)

    def __repr__(self) -> str:
        hops = self.advance_ms != self.size_ms
        advance = f"advance={duration_text(self.advance_ms)!r}, " if hops else ""
        grace = f"grace={duration_text(self.grace_ms)!r}"
        return f"TimeWindows({duration_text(self.size_ms)!r}, {advance}{grace})"

    @property
    def retention_ms(self) -> int:
        """Return how long a window must be kept from its start on."""
        return self.size_ms + self.grace_ms

    def window_starts(self, timestamp: int) -> range:
        """Return the starts of the windows that contain ``timestamp``, earliest first."""
        advance = self.advance_ms
        # No window starts before the epoch, so a timestamp near it is in fewer windows.
        first = max(0, timestamp - self.size_ms + advance) // advance * advance
        return range(first, timestamp + 1, advance)

    def windows_for(self, timestamp: int) -> list[Window]:
        """Return the windows that contain ``timestamp``, earliest first."""
        size = self.size_ms
        return [Window(start, start + size) for start in self.window_starts(timestamp)]
