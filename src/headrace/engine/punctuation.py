"""Which schedules are due at a stream time or a wall-clock time.

Schedules outlive the processors that made them, because processors are renewed at each commit: a
schedule is known by its node, type, interval and order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

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
        """Return the schedules for the task state."""
        return msgspec.convert(self._schedules, list[SavedSchedule], from_attributes=True)

    def renew(self, node: str, processor: object, made: list[Schedule]) -> None:
        """Point the schedules of a former processor to the new one.

        Args:
            node: The node of the processor.
            processor: The new one.
            made: What its `init` scheduled. What only a former `init` scheduled calls nothing
                more: the processor that would be called is gone.

        Raises:
            TopologyError: A schedule made while processing calls a method that is gone.
        """
        for each in self._schedules:
            if each.node != node:
                continue
            if each.method is None:
                if not any(each is one for one in made):
                    each.punctuator = None
                continue
            each.punctuator = getattr(processor, each.method, None)
            if each.punctuator is None:
                msg = (
                    f"Processor {node!r} is scheduled to call its method {each.method!r}, "
                    "which it no longer has. Keep it, or reset the application."
                )
                raise TopologyError(msg)

    def in_init(
        self, made: list[Schedule], schedule: Schedule, punctuator: Callable[[int], object]
    ) -> Schedule:
        """Make a schedule in `init`, or go on with the one an earlier `init` made.

        Args:
            made: The schedules this `init` has made so far; the new one is added.
            schedule: What was asked for, as if it were new.
            punctuator: What to call.
        """
        schedule.order = sum(_alike(each, schedule) for each in made)
        known = (
            each
            for each in self._schedules
            if each.method is None and _alike(each, schedule) and each.order == schedule.order
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

        Raises:
            TopologyError: The punctuator is not a method of the processor.
        """
        method = getattr(punctuator, "__name__", None)
        if getattr(punctuator, "__self__", None) is not processor or method is None:
            msg = (
                f"Processor {schedule.node!r} scheduled {punctuator!r} while processing. "
                "Processors are renewed at each commit, so only a method of the processor can be "
                "found again: schedule one, or schedule in `init`."
            )
            raise TopologyError(msg)
        orders = [each.order for each in self._schedules if _alike(each, schedule)]
        schedule.order = max(orders, default=-1) + 1
        schedule.method = method
        schedule.punctuator = punctuator
        self._schedules.append(schedule)
        self._note_next_due()
        return schedule

    def fire(self, kind: PunctuationType, now: int, call: Callable[[Schedule, int], None]) -> bool:
        """Call what is due, earliest first; each schedule once. Return whether any was."""
        fired = False
        while True:
            due = [
                each
                for each in self._schedules
                if each.type is kind and each.due <= now and not each.cancelled
            ]
            if not due:
                break
            earliest = min(due, key=lambda each: each.due)
            fired = True
            call(earliest, now)
            earliest.move_past(now)
        # One that `init` makes is kept, so that the next `init` finds it cancelled.
        self._schedules = [
            each for each in self._schedules if not each.cancelled or each.method is None
        ]
        self._note_next_due()
        return fired

    def _note_next_due(self) -> None:
        self.next_stream_due = self._next_due(PunctuationType.STREAM_TIME)
        self.next_wall_clock_due = self._next_due(PunctuationType.WALL_CLOCK_TIME)

    def _next_due(self, kind: PunctuationType) -> int:
        live = (each.due for each in self._schedules if each.type is kind and not each.cancelled)
        return min(live, default=MAX_MS)


def new_schedule(
    node: str,
    interval: Duration,
    kind: PunctuationType,
    *,
    start_time: Timestamp | None,
    now: int,
) -> Schedule:
    """Return a schedule that was never due.

    Raises:
        TopologyError: The interval is shorter than a millisecond, or the start is negative.
    """
    interval_ms = duration_ms(interval, what="interval")
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


def _alike(one: Schedule, other: Schedule) -> bool:
    return (one.node, one.type, one.interval_ms) == (other.node, other.type, other.interval_ms)
