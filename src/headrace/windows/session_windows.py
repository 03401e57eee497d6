"""Windows of activity: records that follow each other closely enough."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.durations import Duration, duration_text
from headrace.windows.lengths import check_retention, length_ms


@dataclass(frozen=True, init=False, repr=False)
class SessionWindows:
    """Windows that grow while records arrive, and end with a gap; both bounds are included.

    A session reaches from its first record to its last. With a gap of 5::

        records    x  x    x            x
        sessions   ├───────┤            ┤

    Args:
        inactivity_gap: How far apart two records of one session may be.
        grace: How long after its end, and the gap, a session still takes late records.

    Raises:
        TopologyError: A length is negative.
    """

    inactivity_gap_ms: int
    """How far apart two records of one session may be."""
    grace_ms: int
    """How long after its end, and the gap, a session still takes late records."""

    def __init__(self, inactivity_gap: Duration, *, grace: Duration = 0) -> None:
        # Kafka Streams takes a gap of 0: records of one timestamp are then a session.
        gap_ms = length_ms(
            inactivity_gap, windows="SessionWindows", what="inactivity_gap", at_least=0
        )
        grace_ms = length_ms(grace, windows="SessionWindows", what="grace", at_least=0)
        check_retention(
            gap_ms + grace_ms, windows="SessionWindows", of="`inactivity_gap` and `grace` together"
        )
        object.__setattr__(self, "inactivity_gap_ms", gap_ms)
        object.__setattr__(self, "grace_ms", grace_ms)

    def __repr__(self) -> str:
        gap = duration_text(self.inactivity_gap_ms)
        return f"SessionWindows({gap!r}, grace={duration_text(self.grace_ms)!r})"

    @property
    def retention_ms(self) -> int:
        """Return how long a session must be kept from its end on."""
        return self.inactivity_gap_ms + self.grace_ms
