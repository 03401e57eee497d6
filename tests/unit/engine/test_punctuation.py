"""Schedules: when they are due, how they are identified, how they are saved."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import msgspec
import pytest

from headrace.durations import MAX_MS
from headrace.engine.punctuation import SavedSchedule, Schedule, Schedules, new_schedule
from headrace.errors import TopologyError
from headrace.processors.api import PunctuationType

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


class Owner:
    """A processor with methods that can be scheduled."""

    def __init__(self) -> None:
        self.called: list[int] = []

    def tick(self, timestamp: int) -> None:
        self.called.append(timestamp)


def call(schedule: Schedule, now: int) -> None:
    assert schedule.punctuator is not None
    schedule.punctuator(now)


def in_init(
    schedules: Schedules, *intervals: int, kind: PunctuationType = STREAM
) -> list[Schedule]:
    """Schedule as an `init` would."""
    made: list[Schedule] = []
    for interval in intervals:
        wanted = new_schedule("p", interval, kind, print, start_time=None, now=0)
        schedules.in_init(made, wanted, lambda _: None)
    return made


def due(interval: int, *, first: int) -> list[tuple[int, bool, int]]:
    """Return whether a schedule fires at some times, and when it is due next."""
    schedule = Schedule("p", STREAM, interval, 0, None, first)
    seen = []
    for now in (first - 1, first, first + 99, first + 100, first + 901, first + 902, first + 1000):
        fires = schedule.due <= now
        if fires:
            schedule.move_past(now)
        seen.append((now - first, fires, schedule.due - first))
    return seen


def test_a_schedule_fires_once_and_is_due_at_the_next_point_of_its_grid() -> None:
    assert due(100, first=7) == [
        (-1, False, 0),
        (0, True, 100),
        (99, False, 100),
        (100, True, 200),
        (901, True, 1000),
        (902, False, 1000),
        (1000, True, 1100),
    ]


@pytest.mark.parametrize(
    ("kind", "start", "now", "expected"),
    [
        (STREAM, None, 50, 0),
        (WALL, None, 50, 60),
        (STREAM, 7, 50, 7),
        (WALL, 70, 50, 70),
        (WALL, 7, 50, 57),
        (WALL, 50, 50, 50),
        (WALL, 40, 50, 50),
    ],
)
def test_the_first_time_a_schedule_is_due(
    kind: PunctuationType, start: int | None, now: int, expected: int
) -> None:
    assert new_schedule("p", 10, kind, print, start_time=start, now=now).due == expected


def test_a_start_may_be_a_datetime() -> None:
    start = datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)

    assert new_schedule("p", "1s", STREAM, print, start_time=start, now=0).due == 3000


def test_the_next_due_time_is_known_for_each_clock() -> None:
    schedules = Schedules()
    before = schedules.next_stream_due, schedules.next_wall_clock_due

    in_init(schedules, 10)
    in_init(schedules, 20, kind=WALL)

    assert before == (MAX_MS, MAX_MS)
    assert (schedules.next_stream_due, schedules.next_wall_clock_due) == (0, 20)


def test_the_earliest_fires_first_and_each_once() -> None:
    schedules = Schedules()
    fired: list[int] = []

    def note(interval: int, _now: int) -> None:
        fired.append(interval)

    for interval, start in ((10, 30), (20, 5), (30, 5)):
        wanted = new_schedule("p", interval, STREAM, print, start_time=start, now=0)
        schedules.in_init([], wanted, partial(note, interval))

    answered = schedules.fire(STREAM, 40, call), schedules.fire(STREAM, 40, call)

    assert fired == [20, 30, 10]
    assert answered == (True, False)


def test_a_renewed_init_keeps_the_schedules_of_the_former() -> None:
    schedules = Schedules()
    first = in_init(schedules, 10, 10, 20)

    second = in_init(schedules, 10, 10, 20)

    assert all(one is other for one, other in zip(first, second, strict=True))
    assert [each.order for each in first] == [0, 1, 0]


def test_one_more_schedule_of_a_kind_is_a_new_one() -> None:
    schedules = Schedules()
    in_init(schedules, 10)

    in_init(schedules, 10, 10)

    assert len(schedules.save()) == 2


def test_a_cancelled_schedule_of_init_stays_cancelled() -> None:
    schedules = Schedules()
    in_init(schedules, 10)[0].cancel()
    schedules.fire(STREAM, 50, call)

    [again] = in_init(schedules, 10)

    assert again.cancelled
    assert schedules.next_stream_due == MAX_MS


def test_a_method_is_found_again_by_its_name() -> None:
    schedules, former, renewed = Schedules(), Owner(), Owner()
    wanted = new_schedule("p", 10, STREAM, print, start_time=None, now=0)
    schedules.in_process(former, wanted, former.tick)

    schedules.renew("p", renewed, [])
    schedules.fire(STREAM, 5, call)

    assert (former.called, renewed.called) == ([], [5])


def test_schedules_of_other_nodes_are_left_alone() -> None:
    schedules, owner = Schedules(), Owner()
    wanted = new_schedule("p", 10, STREAM, print, start_time=None, now=0)
    schedules.in_process(owner, wanted, owner.tick)

    schedules.renew("other", Owner(), [])
    schedules.fire(STREAM, 5, call)

    assert owner.called == [5]


def test_a_method_that_is_gone_is_an_error() -> None:
    schedules, owner = Schedules(), Owner()
    wanted = new_schedule("p", 10, STREAM, print, start_time=None, now=0)
    schedules.in_process(owner, wanted, owner.tick)

    with pytest.raises(TopologyError, match="'p' is scheduled to call its method 'tick', which it"):
        schedules.renew("p", object(), [])


def test_one_made_while_processing_is_forgotten_when_it_is_cancelled() -> None:
    schedules, owner = Schedules(), Owner()
    wanted = new_schedule("p", 10, STREAM, print, start_time=None, now=0)

    schedules.in_process(owner, wanted, owner.tick).cancel()
    schedules.fire(STREAM, 5, call)

    assert schedules.save() == []


def test_several_made_while_processing_are_numbered_on() -> None:
    schedules, owner = Schedules(), Owner()

    for _ in range(2):
        wanted = new_schedule("p", 10, STREAM, print, start_time=None, now=0)
        schedules.in_process(owner, wanted, owner.tick)

    assert [each.order for each in schedules.save()] == [0, 1]


@pytest.mark.parametrize("punctuator", [lambda _: None, Owner().tick, print])
def test_only_a_method_of_the_processor_can_be_found_again(punctuator: object) -> None:
    wanted = new_schedule("p", 10, STREAM, print, start_time=None, now=0)

    with pytest.raises(TopologyError, match="Processors are renewed at each commit"):
        Schedules().in_process(Owner(), wanted, punctuator)  # type: ignore[arg-type]


def test_schedules_are_saved_as_plain_data_and_come_back() -> None:
    schedules, owner = Schedules(), Owner()
    in_init(schedules, 10, 20)
    schedules.in_process(
        owner, new_schedule("q", 5, WALL, print, start_time=None, now=3), owner.tick
    )
    schedules.fire(STREAM, 7, call)

    saved = msgspec.msgpack.decode(
        msgspec.msgpack.encode(schedules.save()), type=list[SavedSchedule]
    )

    assert Schedules(saved).save() == schedules.save()
    assert Schedules(saved).next_wall_clock_due == 8
