"""The checks that every kind of window makes of the lengths it is given."""

from __future__ import annotations

from headrace.durations import MAX_MS, Duration, duration_ms
from headrace.errors import TopologyError


def length_ms(value: Duration, *, windows: str, what: str, at_least: int | None = None) -> int:
    """Return the milliseconds of the parameter ``what`` of a class of windows.

    If ``at_least`` is None, it may be negative.

    Raises:
        TopologyError: The value is no duration, or too small.
    """
    try:
        length = duration_ms(value, what=what)
    except ValueError as error:
        msg = f"{windows}: {error}"
        raise TopologyError(msg) from None
    if at_least is not None and length < at_least:
        remedy = "zero or more" if at_least == 0 else "more than zero"
        msg = f"{windows}: `{what}` is {value!r}, which is too short. Use {remedy}."
        raise TopologyError(msg)
    return length


def check_retention(retention_ms: int, *, windows: str, of: str) -> None:
    """Refuse windows whose state could never expire: ``of`` together exceed Kafka's time."""
    if retention_ms > MAX_MS:
        msg = (
            f"{windows}: {of} is {retention_ms} ms, which does not fit in 64 bits. "
            f"Use shorter lengths, of at most {MAX_MS} ms together."
        )
        raise TopologyError(msg)
