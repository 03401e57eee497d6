"""Finds the schedules that are due at a stream time or a wall-clock time.

Schedules outlive the processors that made them, because processors are renewed at each commit: a
schedule is known by its node, type, interval and order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from headrace.durations import MAX_MS, Duration, duration_ms
from headrace.errors import TopologyError
from headrace.processors.api import PunctuationType
from headrace.records import Timestamp, timestamp_ms


class SavedSchedule(msgspec.Struct):
    """A schedule as the task state has it; see `Schedule`."""

    node: str
    type: PunctuationType
    interval_ms: int
    order: int
    method: str | None
    due: int
    cancelled: bool


@dataclass
class Schedule:
    """One schedule of one node."""

    node: str
    type: PunctuationType
    interval_ms: int
    order: int
    """Which of the node's schedules of this type and interval it is."""
    method: str | None
    """The method to call, for one made while processing; None if `init` makes it again."""
    due: int
    cancelled: bool = False
    punctuator: Callable[[int], object] | None = field(default=None, compare=False)

    def cancel(self) -> None:
        """End the schedule, also for the processors to come."""
        self.cancelled = True

    def move_past(self, now: int) -> None:
        """Set the next due time: the first point of the grid after ``now``."""
        missed = max(0, now - self.due) // self.interval_ms
        self.due += (missed + 1) * self.interval_ms


class Schedules:
    """The schedules of a task, in the order they were made."""

    def __init__(self, saved: Iterable[SavedSchedule] = ()) -> None:
        self._schedules = [Schedule(**msgspec.structs.asdict(schedule)) for schedule in saved]
        self.next_stream_due = MAX_MS
        self.next_wall_clock_due = MAX_MS
        self._note_next_due()

    def save(self) -> list[SavedSchedule]:
        return msgspec.convert(self._schedules, list[SavedSchedule], from_attributes=True)

    def renew(self, node: str, processor: object, made: list[Schedule]) -> None:
        """Point the schedules of a former processor to the new one.

        ``made`` are the schedules that the `init` of the new processor made. A schedule that only a
        former `init` made calls nothing more, because its processor is gone. Raises `TopologyError`
        if a schedule made while processing calls a method that is gone.
        """
        for schedule in self._schedules:
            if schedule.node != node:
                continue
            if schedule.method is None:
                if not any(schedule is one for one in made):
                    schedule.punctuator = None
                continue
            schedule.punctuator = getattr(processor, schedule.method, None)
            if schedule.punctuator is None:
                msg = (
                    f"Processor {node!r} is scheduled to call its method {schedule.method!r}, "
                    "which it no longer has. Keep it, or reset the application."
                )
                raise TopologyError(msg)

    def in_init(
        self, made: list[Schedule], schedule: Schedule, punctuator: Callable[[int], object]
    ) -> Schedule:
        """Make a schedule in `init`, or resume the one that an earlier `init` made.

        The schedule is added to ``made``, the schedules that this `init` has made so far.
        """
        schedule.order = sum(_alike(earlier, schedule) for earlier in made)
        known = (
            earlier
            for earlier in self._schedules
            if earlier.method is None
            and _alike(earlier, schedule)
            and earlier.order == schedule.order
        )
        current = next(known, None)
        if current is None:
            current = schedule
            self._schedules.append(current)
        current.punctuator = punctuator
        made.append(current)
        self._note_next_due()
        return current

    def in_process(
        self, processor: object, schedule: Schedule, punctuator: Callable[[int], object]
    ) -> Schedule:
        """Make a schedule while processing; a renewed processor finds it again by its method.

        Raises `TopologyError` if the punctuator is not a method of the processor.
        """
        method = getattr(punctuator, "__name__", None)
        if getattr(punctuator, "__self__", None) is not processor or method is None:
            msg = (
                f"Processor {schedule.node!r} scheduled {punctuator!r} while processing. "
                "Processors are renewed at each commit, so only a method of the processor can be "
                "found again: schedule one, or schedule in `init`."
            )
            raise TopologyError(msg)
        orders = [earlier.order for earlier in self._schedules if _alike(earlier, schedule)]
        schedule.order = max(orders, default=-1) + 1
        schedule.method = method
        schedule.punctuator = punctuator
        self._schedules.append(schedule)
        self._note_next_due()
        return schedule

    def fire(self, kind: PunctuationType, now: int, call: Callable[[Schedule, int], None]) -> bool:
        """Call the schedules that are due, earliest first, each once; return whether any was."""
        fired = False
        while True:
            due = [
                schedule
                for schedule in self._schedules
                if schedule.type is kind and schedule.due <= now and not schedule.cancelled
            ]
            if not due:
                break
            earliest = min(due, key=lambda schedule: schedule.due)
            fired = True
            call(earliest, now)
            earliest.move_past(now)
        # One that `init` makes is kept, so that the next `init` finds it cancelled.
        self._schedules = [
            schedule
            for schedule in self._schedules
            if not schedule.cancelled or schedule.method is None
        ]
        self._note_next_due()
        return fired

    def _note_next_due(self) -> None:
        self.next_stream_due = self._next_due(PunctuationType.STREAM_TIME)
        self.next_wall_clock_due = self._next_due(PunctuationType.WALL_CLOCK_TIME)

    def _next_due(self, kind: PunctuationType) -> int:
        live = (
            schedule.due
            for schedule in self._schedules
            if schedule.type is kind and not schedule.cancelled
        )
        return min(live, default=MAX_MS)


def new_schedule(
    node: str,
    interval: Duration,
    kind: PunctuationType,
    punctuator: Callable[[int], object],
    *,
    start_time: Timestamp | None,
    now: int,
) -> Schedule:
    """Return a schedule that was never due; raise `TopologyError` if an argument is not valid."""
    interval_ms = _checked_types(node, interval, kind, punctuator, start_time)
    if interval_ms < 1:
        msg = f"Processor {node!r} scheduled every {interval_ms} ms. Use one millisecond or more."
        raise TopologyError(msg)
    if start_time is not None:
        due = timestamp_ms(start_time)
        if due < 0:
            msg = f"Processor {node!r} scheduled from {due} on. Use a time of zero or more."
            raise TopologyError(msg)
        if kind is PunctuationType.WALL_CLOCK_TIME and due < now:
            due += -(-(now - due) // interval_ms) * interval_ms
    elif kind is PunctuationType.STREAM_TIME:
        due = 0
    else:
        due = now + interval_ms
    return Schedule(node, kind, interval_ms, 0, None, due)


def _checked_types(node: str, interval: Any, kind: Any, punctuator: Any, start_time: Any) -> int:
    """Return the interval in milliseconds, if all arguments have the types of `schedule`."""
    made = f"Processor {node!r} made a schedule"
    try:
        interval_ms = duration_ms(interval, what="interval")
    except ValueError as error:
        msg = f"{made} that cannot be: {error}"
        raise TopologyError(msg) from None
    if not isinstance(kind, PunctuationType):
        msg = (
            f"{made} with type {kind!r}. Use `PunctuationType.STREAM_TIME` or "
            "`PunctuationType.WALL_CLOCK_TIME`."
        )
    elif not callable(punctuator):
        msg = f"{made} to call {punctuator!r}, which is not callable. Pass a function of the time."
    elif not isinstance(start_time, int | datetime | None):
        msg = f"{made} from {start_time!r} on. Use an int of milliseconds or a datetime."
    else:
        return interval_ms
    raise TopologyError(msg)


def _alike(one: Schedule, other: Schedule) -> bool:
    return (one.node, one.type, one.interval_ms) == (other.node, other.type, other.interval_ms)
