from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.windows import TimeWindows, UnlimitedWindows

timestamps = st.integers(0, 2**41) | st.integers(0, 100)


@st.composite
def time_windows(draw: st.DrawFn) -> TimeWindows:
    size = draw(st.integers(1, 10_000) | st.integers(1, 20))
    return TimeWindows(size, advance=draw(st.integers(max(1, size // 20), size)))


@given(timestamps, time_windows())
def test_a_timestamp_is_in_every_window_it_is_given(timestamp: int, windows: TimeWindows) -> None:
    found = windows.windows_for(timestamp)

    assert all(window.start <= timestamp < window.end for window in found)
    assert all(window.end - window.start == windows.size_ms for window in found)


@given(st.integers(0, 500), time_windows())
def test_a_timestamp_is_given_every_window_it_is_in(timestamp: int, windows: TimeWindows) -> None:
    starts = range(0, timestamp + 1, windows.advance_ms)

    assert [window.start for window in windows.windows_for(timestamp)] == [
        start for start in starts if start <= timestamp < start + windows.size_ms
    ]


@given(timestamps, st.integers(1, 10_000), st.integers(1, 20))
def test_overlapping_windows_are_counted_by_how_many_advances_fit(
    timestamp: int, advance: int, overlaps: int
) -> None:
    found = TimeWindows(advance * overlaps, advance=advance).windows_for(timestamp)

    assert len(found) == min(overlaps, timestamp // advance + 1)


@given(timestamps, time_windows())
def test_the_starts_are_those_of_the_windows(timestamp: int, windows: TimeWindows) -> None:
    starts = [window.start for window in windows.windows_for(timestamp)]

    assert list(windows.window_starts(timestamp)) == starts == sorted(starts)


@given(timestamps, timestamps)
def test_the_unlimited_window_holds_what_is_not_before_its_start(start: int, time: int) -> None:
    windows = UnlimitedWindows(start)

    assert list(windows.window_starts(time)) == ([start] if time >= start else [])
