"""The figures of the slides, and what becomes of bad input."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from headrace import Windowed
from headrace.examples.check_time import DAY
from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.feeding import FeedRecord
from headrace.examples.windows.app import app
from headrace.examples.windows.feed import EIGHT, GRACE, MOVIES, OPENING, TOPICS, feed
from headrace.examples.windows.model import DayOfMovie

NOW = EIGHT + DAY


def counts(topic: str, *seconds: float) -> dict[tuple[float, float], int]:
    """Return the last count of each window, in seconds, of records of key A at these times."""
    with on_driver(app, initial_wall_clock_time=NOW) as run:
        run.write(FeedRecord("window-words", "A", "Apple", int(s * 1000)) for s in seconds)
        last = {each.key.window: each.value for each in run.read(topic)}
        return {
            (window.start / 1000, window.end / 1000): count
            for window, count in last.items()
            if count is not None
        }


def test_tumbling_windows_never_overlap_and_their_end_is_exclusive() -> None:
    assert counts("tumbling-counts", 0, 4.999, 5, 9) == {(0, 5): 2, (5, 10): 2}


def test_hopping_windows_of_5_s_every_3_s_overlap_as_on_the_slide() -> None:
    assert counts("hopping-counts", 5, 6, 9, 10) == {(3, 8): 2, (6, 11): 3, (9, 14): 2}


def test_sliding_windows_are_those_of_the_slide_and_one_that_it_leaves_out() -> None:
    slide = {(1, 6): 1, (2, 7): 2, (8, 13): 1}
    skipped = {(6.001, 11.001): 1}  # the records of the 5 s after the record at 6 s

    assert counts("sliding-counts", 6, 7, 13) == slide | skipped


def test_start_and_end_of_a_sliding_window_are_inclusive() -> None:
    assert counts("sliding-counts", 1, 6)[1, 6] == 2


def test_a_session_ends_after_5_s_without_a_record() -> None:
    assert counts("session-counts", 1, 4, 9, 15) == {(1, 9): 3, (15, 15): 1}


def test_grace_accepts_the_record_of_8_00_58_after_that_of_8_01_05() -> None:
    with on_driver(app, initial_wall_clock_time=NOW) as run:
        run.write(FeedRecord("window-words", "A", "Apple", EIGHT + time) for time in GRACE)

        found = [
            ((each.key.window.start - EIGHT) // 1000, each.value)
            for each in run.read("with-grace-counts")
        ]
        assert found == [(0, 1), (0, 2), (60, 1), (0, 3), (60, 2)]


def test_the_final_result_comes_at_8_01_15_and_the_next_late_record_is_dead() -> None:
    with on_driver(app, initial_wall_clock_time=NOW) as run:
        run.write(FeedRecord("window-words", "A", "Apple", EIGHT + time) for time in GRACE)
        assert run.read("with-grace-results") == []

        run.write([FeedRecord("window-words", "A", "Apple", EIGHT + 75_000)])
        [result] = run.read("with-grace-results")
        assert (result.key.window.start - EIGHT, result.value) == (0, 3)

        run.write([FeedRecord("window-words", "A", "Apple", EIGHT + 59_999)])
        [letter] = run.read("windows-dead")
        assert b"late" in (letter.headers.last("__streams.errors.message") or b"")


def test_tickets_and_revenue_of_a_movie_on_its_opening_day() -> None:
    with on_driver(app, initial_wall_clock_time=NOW) as run:
        run.write(feed())

        days: dict[Windowed[str], DayOfMovie] = {
            each.key: each.value for each in run.read("tickets-per-day")
        }
        opening = OPENING - OPENING % DAY
        assert sum(day.tickets for key, day in days.items() if key.window.start == opening) == 40
        for key, day in days.items():
            assert day.revenue == MOVIES[key.key] * day.tickets
        assert sum(day.tickets for day in days.values()) == 60


@pytest.mark.parametrize(
    "good",
    [
        FeedRecord("window-words", "A", "Apple", EIGHT),
        FeedRecord("tickets", "Alien", {"seat": "A1", "price": Decimal("9.90")}, OPENING),
    ],
    ids=["words", "tickets"],
)
def test_bad_input_is_counted_and_kept(good: FeedRecord) -> None:
    assert fates_of(app, good) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER if good.topic == "tickets" else Fate.PROCESSED,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.DEAD_LETTER,
        "future": Fate.DEAD_LETTER,
    }


def test_end_to_end_the_windows_are_those_of_the_slide(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())

        grace = {each.key.window.start: each.value for each in run.read("with-grace-counts")}
        assert grace == {EIGHT: 3, EIGHT + 60_000: 2}
        assert run.read("windows-dead") == []
