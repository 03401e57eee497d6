"""The one window that never ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headrace.durations import MAX_MS
from headrace.errors import TopologyError
from headrace.records import Timestamp, timestamp_ms
from headrace.windows.window import Window


@dataclass(frozen=True, init=False, repr=False)
class UnlimitedWindows:
    """One window, from ``start`` on; earlier records are in no window.

    Args:
        start: The first timestamp of the window.

    Raises:
        TopologyError: The start is negative, or not a point in time.
    """

    start_ms: int
    """The first timestamp of the window."""

    def __init__(self, start: Timestamp = 0) -> None:
        object.__setattr__(self, "start_ms", _start_ms(start))

    def __repr__(self) -> str:
        return f"UnlimitedWindows(start={self.start_ms})"

    @property
    def size_ms(self) -> int:
        """The length of the window: it ends where Kafka's time ends."""
        return MAX_MS - self.start_ms

    @property
    def grace_ms(self) -> int:
        """Always zero: no record is late for a window that stays open."""
        return 0

    @property
    def retention_ms(self) -> int:
        """Return how long the window must be kept from its start on: for ever."""
        return MAX_MS

    def window_starts(self, timestamp: int) -> range:
        """Return the start of the window if it contains ``timestamp``."""
        start = self.start_ms
        return range(start, start + 1) if timestamp >= start else range(0)

    def windows_for(self, timestamp: int) -> list[Window]:
        """Return the window if it contains ``timestamp``."""
        return [Window(start, MAX_MS) for start in self.window_starts(timestamp)]


def _start_ms(start: Timestamp) -> int:
    if isinstance(start, bool) or not isinstance(start, int | datetime):
        msg = (
            f"UnlimitedWindows: `start` is {start!r}, which is not a point in time. "
            "Use an int of milliseconds since the epoch, or an aware datetime."
        )
        raise TopologyError(msg)
    try:
        start_ms = timestamp_ms(start)
    except ValueError as error:
        msg = f"UnlimitedWindows: `start` cannot be used. {error}"
        raise TopologyError(msg) from None
    if not 0 <= start_ms < MAX_MS:
        msg = (
            f"UnlimitedWindows: `start` is {start!r}, which is not a timestamp of Kafka. "
            f"Use zero or more, and less than {MAX_MS}."
        )
        raise TopologyError(msg)
    return start_ms
