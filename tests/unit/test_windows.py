from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from headrace.durations import MAX_MS
from headrace.errors import TopologyError
from headrace.windows import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Window,
)

Made = TimeWindows | SlidingWindows | SessionWindows | JoinWindows | UnlimitedWindows


def test_a_tumbling_window_is_as_long_as_the_next_is_far() -> None:
    windows = TimeWindows("15s", grace=timedelta(seconds=5))

    assert (windows.size_ms, windows.advance_ms, windows.grace_ms) == (15_000, 15_000, 5_000)


def test_a_hopping_window_has_its_own_advance() -> None:
    windows = TimeWindows(10, advance=5)

    assert (windows.size_ms, windows.advance_ms, windows.grace_ms) == (10, 5, 0)


def test_a_timestamp_is_in_one_tumbling_window() -> None:
    windows = TimeWindows(10)

    assert windows.windows_for(9) == [Window(0, 10)]
    assert windows.windows_for(10) == [Window(10, 20)]


def test_a_timestamp_is_in_several_hopping_windows_earliest_first() -> None:
    windows = TimeWindows(12, advance=5)

    assert windows.windows_for(21) == [Window(10, 22), Window(15, 27), Window(20, 32)]
    assert windows.windows_for(22) == [Window(15, 27), Window(20, 32)]


def test_no_window_starts_before_the_epoch() -> None:
    windows = TimeWindows(10, advance=3)

    assert windows.windows_for(0) == [Window(0, 10)]
    assert windows.windows_for(4) == [Window(0, 10), Window(3, 13)]


def test_a_window_may_be_one_millisecond_long() -> None:
    assert TimeWindows(1).windows_for(0) == [Window(0, 1)]
    assert TimeWindows(2, advance=1).windows_for(1) == [Window(0, 2), Window(1, 3)]


def test_the_unlimited_window_holds_everything_from_its_start_on() -> None:
    windows = UnlimitedWindows(100)

    assert windows.windows_for(99) == []
    assert windows.windows_for(100) == [Window(100, MAX_MS)]
    assert windows.windows_for(10**15) == [Window(100, MAX_MS)]
    assert windows.start_ms + windows.size_ms == MAX_MS
    assert windows.grace_ms == 0


def test_the_unlimited_window_may_start_at_a_datetime() -> None:
    assert UnlimitedWindows(datetime(1970, 1, 2, tzinfo=UTC)).start_ms == 86_400_000
    assert UnlimitedWindows().start_ms == 0


def test_a_join_window_has_one_bound_or_two() -> None:
    both = JoinWindows("5s", grace="1s")
    each = JoinWindows(before="5s", after=0)
    one_replaced = JoinWindows("5s", after="-1s")
    other_replaced = JoinWindows("5s", before="1m")

    assert (both.before_ms, both.after_ms, both.grace_ms) == (5_000, 5_000, 1_000)
    assert (each.before_ms, each.after_ms, each.grace_ms) == (5_000, 0, 0)
    assert (one_replaced.before_ms, one_replaced.after_ms) == (5_000, -1_000)
    assert (other_replaced.before_ms, other_replaced.after_ms) == (60_000, 5_000)
    assert one_replaced.size_ms == 4_000


@pytest.mark.parametrize(
    ("windows", "retention"),
    [
        (TimeWindows(10, grace=5), 15),
        (TimeWindows(10, advance=2, grace=5), 15),
        (SlidingWindows(10, grace=5), 25),
        (SessionWindows(10, grace=5), 15),
        (JoinWindows(before=10, after=7, grace=5), 22),
        (UnlimitedWindows(7), MAX_MS),
    ],
)
def test_state_is_kept_as_long_as_a_record_may_need_it(windows: Made, retention: int) -> None:
    assert windows.retention_ms == retention


def test_the_end_of_a_sliding_window_is_its_difference_after_its_start() -> None:
    assert SlidingWindows("10s").size_ms == 10_000


@pytest.mark.parametrize(
    "windows",
    [SlidingWindows(0), SessionWindows(0), JoinWindows(0), JoinWindows(before=-5, after=5)],
)
def test_an_empty_difference_or_gap_is_accepted_as_kafka_does(windows: Made) -> None:
    assert windows.retention_ms == 0


@pytest.mark.parametrize(
    "windows",
    [
        TimeWindows("15s", grace="5s"),
        TimeWindows("15s", advance="5s", grace="0ms"),
        SlidingWindows("15s", grace="5s"),
        SessionWindows("15s", grace="5s"),
        JoinWindows("15s", grace="5s"),
        JoinWindows(before="15s", after="-5s"),
        UnlimitedWindows(5),
    ],
)
def test_windows_print_as_they_are_written_and_compare_by_value(windows: Made) -> None:
    again: object = eval(repr(windows))

    assert again == windows
    assert hash(again) == hash(windows)
    assert pickle.loads(pickle.dumps(windows)) == windows


def test_windows_print_their_lengths_readably() -> None:
    assert repr(TimeWindows(15_000)) == "TimeWindows('15s', grace='0ms')"
    assert repr(TimeWindows(10, advance=5)) == "TimeWindows('10ms', advance='5ms', grace='0ms')"
    assert repr(JoinWindows(before=1, after=2)) == (
        "JoinWindows(before='1ms', after='2ms', grace='0ms')"
    )


def test_windows_do_not_change() -> None:
    with pytest.raises(AttributeError):
        TimeWindows("15s").size_ms = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "grace"),
    [
        (lambda grace: TimeWindows(10, grace=grace), MAX_MS - 10),
        (lambda grace: SlidingWindows(10, grace=grace), MAX_MS - 20),
        (lambda grace: SessionWindows(10, grace=grace), MAX_MS - 10),
        (lambda grace: JoinWindows(before=10, after=-3, grace=grace), MAX_MS - 7),
    ],
)
def test_state_may_be_kept_up_to_the_end_of_time_and_not_longer(
    make: Callable[[int], Made], grace: int
) -> None:
    assert make(grace).retention_ms == MAX_MS
    with pytest.raises(TopologyError, match=r"does not fit in 64 bits\. Use shorter lengths"):
        make(grace + 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeWindows(0), "TimeWindows: `size` is 0, which is too short. Use more than"),
        (lambda: TimeWindows("-5s"), "TimeWindows: `size` is '-5s'"),
        (lambda: TimeWindows("5 s"), "TimeWindows: `size` is '5 s', which is not a duration"),
        (lambda: TimeWindows(10, advance=0), "`advance` is 0, which is too short"),
        (lambda: TimeWindows(10, advance=11), "`advance` is 11, which is more than the `size` 10"),
        (lambda: TimeWindows(10, grace=-1), "`grace` is -1, which is too short. Use zero or more"),
        (lambda: TimeWindows(MAX_MS, grace=1), "`size` and `grace` together is 92233"),
        (lambda: SlidingWindows(-1), "SlidingWindows: `time_difference` is -1"),
        (lambda: SlidingWindows(1, grace=-1), "SlidingWindows: `grace` is -1"),
        (lambda: SlidingWindows(2**62), "SlidingWindows: twice the `time_difference`"),
        (lambda: SessionWindows(-1), "SessionWindows: `inactivity_gap` is -1"),
        (lambda: SessionWindows(1, grace=-1), "SessionWindows: `grace` is -1"),
        (lambda: SessionWindows(MAX_MS, grace=1), "`inactivity_gap` and `grace` together"),
        (lambda: JoinWindows(), "`before` is not given. Give `time_difference`, or both"),
        (lambda: JoinWindows(before=1), "`after` is not given"),
        (lambda: JoinWindows(after=1), "`before` is not given"),
        (lambda: JoinWindows(1, before=1, after=1), "`time_difference` .1. has no side left"),
        (lambda: JoinWindows(-1), "`time_difference` is -1"),
        (lambda: JoinWindows(before=-2, after=1), "leave no time between them. Make their sum"),
        (lambda: JoinWindows(before="x", after=1), "`before` is 'x', which is not a duration"),
        (lambda: JoinWindows(1, grace=-1), "JoinWindows: `grace` is -1"),
        (lambda: JoinWindows(2**62), "`before`, `after` and `grace` together"),
        (lambda: UnlimitedWindows(-1), "`start` is -1, which is not a timestamp of Kafka"),
        (lambda: UnlimitedWindows(MAX_MS), "Use zero or more, and less than"),
        (lambda: UnlimitedWindows(True), "`start` is True, which is not a point in time"),
        (
            lambda: UnlimitedWindows(cast(Any, "5s")),
            "`start` is '5s', which is not a point in time",
        ),
        (lambda: UnlimitedWindows(datetime(2022, 1, 1)), "`start` cannot be used. .*no time zone"),
    ],
)
def test_windows_that_cannot_be_are_refused_with_the_remedy(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        make()
