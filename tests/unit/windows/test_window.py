"""Window and Windowed: small, frozen, and checked."""

from __future__ import annotations

import copy
from datetime import UTC, datetime

import pytest

from headrace.windows.window import Window, Windowed

UNLIMITED = 2**63 - 1


def test_a_window_has_its_bounds_in_milliseconds_and_as_datetimes() -> None:
    window = Window(1_000, 61_500)

    assert (window.start, window.end) == (1_000, 61_500)
    assert window.start_time == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert window.end_time == datetime(1970, 1, 1, 0, 1, 1, 500_000, tzinfo=UTC)


@pytest.mark.parametrize("end", [UNLIMITED, 253_402_300_800_000])
def test_an_end_beyond_what_datetimes_can_say_is_the_last_datetime(end: int) -> None:
    window = Window(0, end)

    assert window.end == end
    assert window.end_time == datetime.max.replace(tzinfo=UTC)


def test_a_window_may_be_as_short_as_one_session_of_one_record() -> None:
    assert Window(7, 7) == Window(start=7, end=7)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5), (-2, -1)])
def test_an_impossible_window_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"from {start} to {end} is impossible. It must start at"):
        Window(start, end)


def test_windows_are_sorted_by_start_and_then_by_end() -> None:
    windows = [Window(5, 20), Window(0, 30), Window(5, 10)]

    assert sorted(windows) == [Window(0, 30), Window(5, 10), Window(5, 20)]


def test_a_windowed_key_prints_as_in_kafka() -> None:
    assert str(Windowed("ann", Window(0, 15_000))) == "[ann@0/15000]"
    assert str(Windowed(7, Window(5, UNLIMITED))) == "[7@5/9223372036854775807]"


def test_windowed_keys_with_the_same_key_and_window_are_one_entry_of_a_dict() -> None:
    found = {Windowed("ann", Window(0, 10)): 1}

    assert found[Windowed("ann", Window(0, 10))] == 1
    assert Windowed("ann", Window(0, 11)) not in found
    assert Windowed("bob", Window(0, 10)) not in found


def test_neither_can_be_changed() -> None:
    window = Window(0, 10)
    windowed = Windowed("ann", window)

    with pytest.raises(AttributeError):
        window.start = 5  # type: ignore[misc]  # what the test is about
    with pytest.raises(AttributeError):
        windowed.key = "bob"  # type: ignore[misc]  # what the test is about


def test_both_survive_being_shipped() -> None:
    windowed = Windowed(("ann", 1), Window(0, 10))

    assert copy.deepcopy(windowed) == windowed
