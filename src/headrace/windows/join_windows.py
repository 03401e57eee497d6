"""The span of time in which two records are joined."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.durations import Duration, duration_text
from headrace.errors import TopologyError
from headrace.windows.lengths import check_retention, length_ms


@dataclass(frozen=True, init=False, repr=False)
class JoinWindows:
    """The times at which a left record finds right ones to join; both bounds are included.

    ::

        right:   t - before  ├───────────┼──────────┤  t + after
        left:                            t

    Args:
        time_difference: The bound on both sides, or on the side that is not given.
        before: How much earlier the right record may be; negative if it must be later.
        after: How much later the right record may be; negative if it must be earlier.
        grace: How long the join waits for late records before a left record counts as unmatched.

    Raises:
        TopologyError: A bound is missing or given twice, the bounds leave no time between them, or
            the grace is negative.
    """

    before_ms: int
    """How much earlier than the left record the right one may be."""
    after_ms: int
    """How much later than the left record the right one may be."""
    grace_ms: int
    """How long the join waits for late records."""

    def __init__(
        self,
        time_difference: Duration | None = None,
        *,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration = 0,
    ) -> None:
        before_ms, after_ms = _bounds_ms(time_difference, before, after)
        grace_ms = length_ms(grace, windows="JoinWindows", what="grace", at_least=0)
        if before_ms + after_ms < 0:
            msg = (
                f"JoinWindows: `before` ({before_ms} ms) and `after` ({after_ms} ms) leave no time "
                "between them. Make their sum zero or more."
            )
            raise TopologyError(msg)
        check_retention(
            before_ms + after_ms + grace_ms,
            windows="JoinWindows",
            of="`before`, `after` and `grace` together",
        )
        object.__setattr__(self, "before_ms", before_ms)
        object.__setattr__(self, "after_ms", after_ms)
        object.__setattr__(self, "grace_ms", grace_ms)

    def __repr__(self) -> str:
        before, after = duration_text(self.before_ms), duration_text(self.after_ms)
        sides = repr(before) if before == after else f"before={before!r}, after={after!r}"
        return f"JoinWindows({sides}, grace={duration_text(self.grace_ms)!r})"

    @property
    def size_ms(self) -> int:
        """The length of the time a record joins in."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """Return how long a record must be kept."""
        return self.before_ms + self.after_ms + self.grace_ms


def _bounds_ms(
    time_difference: Duration | None, before: Duration | None, after: Duration | None
) -> tuple[int, int]:
    if time_difference is None:
        if before is None or after is None:
            missing = "before" if before is None else "after"
            msg = (
                f"JoinWindows: `{missing}` is not given. "
                "Give `time_difference`, or both `before` and `after`."
            )
            raise TopologyError(msg)
        return _side_ms(before, "before"), _side_ms(after, "after")
    if before is not None and after is not None:
        msg = (
            f"JoinWindows: `time_difference` ({time_difference!r}) has no side left to bound, "
            "because `before` and `after` are given too. Leave it out."
        )
        raise TopologyError(msg)
    difference_ms = length_ms(
        time_difference, windows="JoinWindows", what="time_difference", at_least=0
    )
    return (
        difference_ms if before is None else _side_ms(before, "before"),
        difference_ms if after is None else _side_ms(after, "after"),
    )


def _side_ms(side: Duration, what: str) -> int:
    return length_ms(side, windows="JoinWindows", what=what)
