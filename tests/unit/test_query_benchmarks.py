"""The arithmetic of the benchmark of queries: gaps, waits, verdicts, and its writer's pace."""

from __future__ import annotations

import json

import pytest

from benchmarks.query_load import Load
from benchmarks.query_report import (
    BARS,
    Bar,
    QueryReport,
    busy_note,
    longest_gap,
    query_table,
    shown,
    waits,
)
from benchmarks.report import Machine, json_from_report


def report(load: float = 0.0, **figures: float) -> QueryReport:
    made = QueryReport("2024-01-01", 1_000_000, Machine(2, 24.0, "6.1", load), "wrk")
    made.add(**figures)
    return made


def line_of(found: QueryReport, title: str) -> str:
    return next(line for line in query_table(found) if line.startswith(title))


def test_a_transaction_is_visible_when_a_reader_sees_it_or_a_later_one() -> None:
    commits = {4: 10.0, 5: 10.2, 6: 10.4, 7: 10.6}
    sightings = [(3, 9.9), (4, 10.05), (6, 10.5)]

    assert waits(commits, sightings) == pytest.approx([50.0, 300.0, 100.0])


def test_a_reader_may_see_a_transaction_before_its_writer_hears_of_the_commit() -> None:
    assert waits({1: 5.0}, [(1, 4.999)]) == [0.0]


def test_a_gap_is_counted_from_the_kill_and_for_each_stream_alone() -> None:
    answers = [
        *((at / 10, "a") for at in range(100)),
        *((at / 10, "b") for at in range(50)),
        *((at / 10, "b") for at in range(57, 100)),
    ]

    assert longest_gap(answers, killed=5.0, until=10.0) == pytest.approx(0.7)
    assert longest_gap(answers, killed=6.0, until=10.0) == pytest.approx(0.1)


def test_a_stream_that_gets_no_more_answers_has_a_gap_to_the_end() -> None:
    answers = [(1.0, "a"), (2.0, "b"), (8.0, "b")]

    assert longest_gap(answers, killed=3.0, until=9.0) == 6.0


@pytest.mark.parametrize(
    ("bar", "value", "is_met"),
    [
        (Bar("", "/s", 10, is_least=True), 10, True),
        (Bar("", "/s", 10, is_least=True), 9.9, False),
        (Bar("", "ms", 10), 10, True),
        (Bar("", "ms", 10), 10.1, False),
        (Bar("", "ms", None), 10, None),
    ],
)
def test_a_bar_is_a_least_or_a_most(bar: Bar, value: float, is_met: bool | None) -> None:
    assert bar.is_met(value) is is_met


def test_a_table_has_a_verdict_for_each_figure_with_a_bar() -> None:
    found = report(point_reads=25_000.4, point_reads_p99=11.0, point_reads_updates=20_000)
    found.add("kafka-streams", point_reads=30_000)
    found.missing["restore_peer"] = "there is no peer"

    assert line_of(found, "point reads").endswith("met")
    assert "25,000/s" in line_of(found, "point reads")
    assert "30,000/s" in line_of(found, "point reads")
    assert line_of(found, "  p99").endswith("MISSED")
    assert not line_of(found, "  updates").endswith(("met", "MISSED"))
    assert line_of(found, "restore from a peer").endswith("not measured: there is no peer")
    assert not any(line.startswith("SQL") for line in query_table(found))


def test_figures_have_the_digits_that_they_deserve() -> None:
    assert shown(1_234_567.8, "records/s") == "1,234,568 records/s"
    assert shown(0.444, "s") == "0.44 s"
    assert shown(312.4, "ms") == "312 ms"
    assert shown(2, "") == "2"


def test_a_busy_machine_is_mentioned() -> None:
    assert busy_note(report(load=1.9)) is None
    assert "9.5 on 2 cores" in str(busy_note(report(load=9.5)))


def test_a_report_is_json_with_the_load_of_each_figure() -> None:
    written = json.loads(json_from_report(report(memory=250.0)))

    assert written["figures"][0].keys() == {"name", "value", "load_average", "system"}
    assert written["figures"][0]["name"] in BARS


def test_requests_without_an_answer_do_not_count() -> None:
    assert Load(1_000, 10.0, 1.0, 2.0, errors=100).per_second == 90.0
