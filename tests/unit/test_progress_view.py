"""The progress view of a running application."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console

from headrace.progress_view import (
    ChangedResult,
    LiveView,
    RunSnapshot,
    SummaryLines,
    TopicProgress,
    show_progress,
    summary_line,
)
from tests.waiting import PATIENCE

SNAPSHOT = RunSnapshot(
    application_id="orders",
    state="RUNNING",
    batch=812,
    batch_seconds=0.43,
    topics=(TopicProgress("orders", 1_250_000, 24_100, 17), TopicProgress("stores", 3, 0, 0)),
    written_per_second=24_100,
    dropped=2,
    results=(ChangedResult("revenue", "store_1", "[red]12.5"),),
)


def drawn(snapshot: RunSnapshot, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(LiveView(lambda: snapshot, console).renderable())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_summary_is_one_line() -> None:
    assert summary_line(SNAPSHOT) == (
        "running batch 812 took 430 ms  in 24.1k/s  out 24.1k/s  lag 17  dropped 2  dlq 0"
    )


def test_a_summary_leaves_out_what_is_not_known() -> None:
    assert summary_line(RunSnapshot(application_id="a", state="CREATED")) == (
        "created batch -  in 0/s  out 0/s  lag 0  dropped 0  dlq 0"
    )


def test_a_summary_without_progress_names_what_the_run_waits_for() -> None:
    starting = RunSnapshot(application_id="a", state="REBALANCING", message="Starting …")

    assert summary_line(starting) == "rebalancing  Starting …"
    assert summary_line(replace(SNAPSHOT, message="Stopping")) == summary_line(SNAPSHOT)


def test_the_view_shows_topics_batch_drops_and_results() -> None:
    text = drawn(SNAPSHOT)

    assert "orders  RUNNING  batch 812 in 430 ms" in text
    assert "dropped 2" in text
    assert "1,250,000      24.1k   17" in text
    assert "revenue  store_1  [red]12.5" in text


@pytest.mark.parametrize("width", [40, 80])
def test_text_that_the_view_cuts_ends_in_an_ellipsis(width: int) -> None:
    long = ChangedResult("revenue-of-stores-by-day-and-hour", "store " * 20, "12.5, " * 100)

    *_, header, row = drawn(replace(SNAPSHOT, results=(long,)), width).splitlines()

    assert header.split() == ["result", "key", "value"]
    assert [row[header.index(name) :][0] for name in ("result", "key", "value")] == ["r", "s", "1"]
    assert (len(row), row.count("…"), row[-1]) == (width, 3, "…")


def test_the_view_shows_what_the_application_waits_for() -> None:
    text = drawn(RunSnapshot(application_id="a", state="CREATED", message="Starting"))

    assert "Starting" in text
    assert "topic" not in text


def test_a_terminal_gets_the_live_view() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    lines: list[str] = []

    with show_progress(lambda: SNAPSHOT, lines.append, console):
        pass

    assert isinstance(console.file, io.StringIO)
    assert "batch 812" in console.file.getvalue()
    assert lines == []


def test_elsewhere_lines_are_written_now_and_then_and_at_the_end() -> None:
    lines: list[str] = []
    three = threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            three.set()

    with SummaryLines(lambda: SNAPSHOT, write, seconds=0.001):
        assert three.wait(PATIENCE)

    assert len(lines) >= 4
    assert set(lines) == {summary_line(SNAPSHOT)}


def test_without_a_terminal_there_are_lines() -> None:
    lines: list[str] = []

    with show_progress(lambda: SNAPSHOT, lines.append, None):
        pass

    assert lines == [summary_line(SNAPSHOT)]


def test_lines_come_as_often_as_they_are_asked_for() -> None:
    lines: list[str] = []
    three = threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            three.set()

    with show_progress(lambda: SNAPSHOT, write, None, every=timedelta(milliseconds=1)):
        assert three.wait(PATIENCE)


def test_lines_come_more_often_while_the_application_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.progress_view._START_SECONDS", 0.001)
    starting = RunSnapshot(application_id="a", state="REBALANCING", is_starting=True)
    three = threading.Semaphore(0)

    with show_progress(lambda: starting, lambda _: three.release(), None, every=timedelta(days=1)):
        for _ in range(3):
            assert three.acquire(timeout=PATIENCE)


@pytest.mark.parametrize("every", [timedelta(), timedelta(milliseconds=-1)])
def test_no_line_is_written_if_there_is_no_time_between_them(every: timedelta) -> None:
    lines: list[str] = []

    with show_progress(lambda: SNAPSHOT, lines.append, None, every=every):
        pass

    assert lines == []


def test_the_view_shows_the_first_failures() -> None:
    assert "Step 'x' skipped a record." in drawn(
        replace(SNAPSHOT, failures=("Step 'x' skipped a record.",))
    )
