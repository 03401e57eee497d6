"""The tables of the slides, reports that come too early, and what becomes of bad input."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.delivery_reports.app import app
from headrace.examples.delivery_reports.feed import (
    REPORTS,
    TOPICS,
    feed,
    message,
    report,
    response,
    slides,
)
from headrace.examples.feeding import FeedRecord


def test_each_report_of_the_slide_delivers_what_the_slide_says() -> None:
    with on_driver(app) as run:
        run.write(slides())
        assert [(each.key, each.value.status) for each in run.read("mt-messages")] == [
            ("1111", "SENT"),
            ("2222", "SENT"),
        ]

        delivered = {}
        for key in REPORTS:
            run.write([report(key)])
            delivered[key] = [(each.key, each.value.status) for each in run.read("mt-messages")]
        assert delivered == {
            "1-001": [],
            "1-002": [("1111", "DELIVERED")],
            "1-003": [("2222", "DELIVERED")],
            "1-004": [],
        }


RECORDS = [message("2222", 1), response("2222", 1, 1, "003"), report("1-003")]


@pytest.mark.parametrize("records", list(itertools.permutations(RECORDS)))
def test_sent_comes_before_delivered_in_any_order_of_the_input(
    records: tuple[FeedRecord, ...],
) -> None:
    with on_driver(app) as run:
        run.write(records)

        assert [each.value.status for each in run.read("mt-messages")] == ["SENT", "DELIVERED"]


def test_duplicates_of_everything_give_each_status_once() -> None:
    with on_driver(app) as run:
        run.write([*RECORDS, *RECORDS])

        assert [each.value.status for each in run.read("mt-messages")] == ["SENT", "DELIVERED"]


@pytest.mark.parametrize("good", RECORDS[1:], ids=["response", "report"])
def test_bad_input_is_counted_and_kept(good: FeedRecord) -> None:
    assert fates_of(app, good, before=RECORDS[:1]) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,  # and changes nothing: see above
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


def test_bad_messages_are_counted_and_kept() -> None:
    assert fates_of(app, message("1111", 2)) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.PROCESSED,  # it deletes the message
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


def test_end_to_end_delivered_messages_were_sent_before(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())

        found: dict[str, list[str]] = {}
        for each in run.read("mt-messages"):
            found.setdefault(each.key, []).append(each.value.status)
        assert found["1111"] == found["2222"] == ["SENT", "DELIVERED"]
        assert "3333" not in found
        assert all(statuses[0] == "SENT" for statuses in found.values())
        assert len(found) > 10
