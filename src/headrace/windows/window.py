"""A window of time, and a key together with the window it was aggregated in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Generic

from msgspec import Struct

from headrace.records import K

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)

# Structs, not dataclasses: one or more are made per record, and a frozen dataclass takes ten times
# as long to make.


class Window(Struct, frozen=True, order=True, gc=False):
    """A stretch of time. Whether its end belongs to it is for the window's kind to say."""

    start: int
    """The first millisecond, since the epoch."""
    end: int
    """The last, or the one after it; 2**63 - 1 if the window has no end."""

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            msg = (
                f"A window from {self.start} to {self.end} is impossible. "
                "It must start at 0 or later, and must not end before it starts."
            )
            raise ValueError(msg)

    @property
    def start_time(self) -> datetime:
        """The start as an aware datetime."""
        return _datetime_from_ms(self.start)

    @property
    def end_time(self) -> datetime:
        """The end as an aware datetime; the last one there is, if the window has no end."""
        return _datetime_from_ms(self.end)


class Windowed(Struct, Generic[K], frozen=True):
    """A key together with a window: the key of a windowed table."""

    key: K
    """The key that was grouped by."""
    window: Window
    """The window its records fell in."""

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start}/{self.window.end}]"


def _datetime_from_ms(timestamp: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return _LAST
