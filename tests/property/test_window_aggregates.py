"""Windowed aggregations against models that are too simple to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import (
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from headrace.testing import TopologyTestDriver

LONG = 10_000
Piped = list[tuple[str, int]]
PIPED: st.SearchStrategy[Piped] = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=15
)


def append(_key: str, value: int, items: list[int]) -> list[int]:
    items.append(value)
    return items


def merge(_key: str, items: list[int], others: list[int]) -> list[int]:
    items.extend(others)
    return items


def topology(windows: Any) -> Topology:
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", key=str, value=int).group_by_key().windowed_by(windows)
    functions = (append, merge) if isinstance(windows, SessionWindows) else (append,)
    grouped.aggregate(list[int], *functions, materialized=Materialized("windows", retention=LONG))
    return builder.build()


def contents(windows: Any, piped: Piped, cache: int) -> dict[tuple[str, int, int], list[int]]:
    """Return which records each window holds at the end, by key, start and end."""
    with TopologyTestDriver(topology(windows), statestore_cache_max_bytes=cache) as driver:
        topic = driver.create_input_topic("in")
        for key, timestamp in piped:
            topic.pipe_input(key, timestamp, timestamp=timestamp)
        found = driver.get_state_store("windows").all()
        return {
            (w.key, w.window.start, w.window.end): sorted(getattr(held, "value", held))
            for w, held in found
        }


def held(piped: Piped, key: str, first: int, last: int) -> list[int]:
    return sorted(t for k, t in piped if k == key and first <= t <= last)


def check(
    windows: Any,
    piped: Piped,
    cache: int,
    model: Callable[[Piped, str], set[tuple[int, int]]],
    *,
    inclusive: bool,
) -> None:
    expected = {
        (key, start, end): held(piped, key, start, end if inclusive else end - 1)
        for key in {key for key, _ in piped}
        for start, end in model(piped, key)
    }
    assert contents(windows, piped, cache) == expected


@given(
    piped=PIPED,
    size=st.integers(1, 20),
    advance=st.integers(1, 20),
    cache=st.sampled_from([0, 200, 10**6]),
)
def test_a_time_window_holds_the_records_between_its_start_and_its_end(
    piped: Piped, size: int, advance: int, cache: int
) -> None:
    advance = min(advance, size)

    def model(piped: Piped, key: str) -> set[tuple[int, int]]:
        times = [t for k, t in piped if k == key]
        return {(s, s + size) for t in times for s in range(0, t + 1, advance) if s > t - size}

    windows = TimeWindows(size, advance=advance, grace=LONG - size)
    check(windows, piped, cache, model, inclusive=False)


@given(piped=PIPED, difference=st.integers(1, 20), cache=st.sampled_from([0, 200, 10**6]))
def test_a_sliding_window_ends_with_a_record_or_follows_one_and_is_never_empty(
    piped: Piped, difference: int, cache: int
) -> None:
    def model(piped: Piped, key: str) -> set[tuple[int, int]]:
        times = {t for k, t in piped if k == key}
        left = {max(0, t - difference) for t in times}
        right = {t + 1 for t in times if any(t + 1 <= u <= t + 1 + difference for u in times)}
        return {(start, start + difference) for start in left | right}

    windows = SlidingWindows(difference, grace=LONG - 2 * difference)
    check(windows, piped, cache, model, inclusive=True)


@given(piped=PIPED, gap=st.integers(0, 12), cache=st.sampled_from([0, 200, 10**6]))
def test_a_session_holds_the_records_that_follow_each_other_within_the_gap(
    piped: Piped, gap: int, cache: int
) -> None:
    def model(piped: Piped, key: str) -> set[tuple[int, int]]:
        sessions: list[tuple[int, int]] = []
        for time in sorted(t for k, t in piped if k == key):
            if sessions and time - sessions[-1][1] <= gap:
                sessions[-1] = (sessions[-1][0], time)
            else:
                sessions.append((time, time))
        return set(sessions)

    windows = SessionWindows(gap, grace=LONG - gap)
    check(windows, piped, cache, model, inclusive=True)
