from __future__ import annotations

from datetime import timedelta
from enum import IntEnum
from typing import Any

import pytest

from headrace.durations import MAX_MS, duration_ms, duration_text


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("250ms", 250),
        ("5s", 5_000),
        ("15m", 900_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("1m5ms", 60_005),
        ("1.5s", 1_500),
        ("0.001s", 1),
        ("+5s", 5_000),
        ("-5s", -5_000),
        ("-1h30m", -5_400_000),
        ("0ms", 0),
    ],
)
def test_text_is_read_by_its_units(written: str, milliseconds: int) -> None:
    assert duration_ms(written, what="grace") == milliseconds


def test_an_int_is_milliseconds() -> None:
    class Wait(IntEnum):
        SHORT = 20

    assert duration_ms(1500, what="grace") == 1500
    assert duration_ms(-1, what="grace") == -1
    assert duration_ms(Wait.SHORT, what="grace") == 20
    assert type(duration_ms(Wait.SHORT, what="grace")) is int


def test_a_timedelta_is_read_exactly() -> None:
    assert duration_ms(timedelta(hours=1, milliseconds=1), what="grace") == 3_600_001
    assert duration_ms(timedelta(seconds=-5), what="grace") == -5_000


@pytest.mark.parametrize("value", ["1.5ms", "0.0001s", timedelta(microseconds=1500)])
def test_a_part_of_a_millisecond_is_refused(value: Any) -> None:
    with pytest.raises(
        ValueError, match=r"`grace` is .* not a whole number of milliseconds\. Round"
    ):
        duration_ms(value, what="grace")


@pytest.mark.parametrize(
    "value",
    [
        *("", "5", "2.50ms0", "s", "5 s", "5S", "5sec", "1m1h", "1h1h", "1.s", ".5s", "--5s", "٣s"),
        *("5s\n", True, 1.5, None, b"5s", [5]),
    ],
)
def test_a_wrong_duration_is_refused_with_the_ways_to_write_one(value: Any) -> None:
    with pytest.raises(ValueError, match="not a duration") as raised:
        duration_ms(value, what="inactivity_gap")

    assert "`inactivity_gap` is" in str(raised.value)
    assert '"1h30m"' in str(raised.value)


@pytest.mark.parametrize("value", [MAX_MS + 1, -MAX_MS - 1, "9999999999999999999d"])
def test_more_than_64_bits_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"`size` is .* does not fit in 64 bits\. Use at most"):
        duration_ms(value, what="size")


def test_the_longest_duration_fits() -> None:
    assert MAX_MS == 9_223_372_036_854_775_807
    assert duration_ms(MAX_MS, what="size") == MAX_MS
    assert duration_ms(-MAX_MS, what="size") == -MAX_MS


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (250, "250ms"), (5_400_000, "1h30m"), (-1, "-1ms"), (86_400_000, "1d")],
)
def test_milliseconds_become_the_shortest_text(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text
