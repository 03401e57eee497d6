"""When a captcha is asked for, the windows that the document prints, and the fate of bad input."""

from __future__ import annotations

import logging
from itertools import islice
from pathlib import Path

import pytest

from headrace import KafkaStreams
from headrace.examples.captcha.app import app, clock, global_app, wall_clock_app
from headrace.examples.captcha.feed import TOPICS, VERIFIED, event, feed, printed
from headrace.examples.checking import Fate, fates_of, in_process, on_driver

both = pytest.mark.parametrize("variant", [app, global_app], ids=["table", "global table"])

LINES = """\
Window [14:11:52-14:11:57] Browser:XXXYXXXY0 count=1
Window [14:11:54-14:11:59] Browser:XXXYXXXY0 count=1
Window [14:11:52-14:11:57] Browser:XXXYXXXY4 count=1
Window [14:11:54-14:11:59] Browser:XXXYXXXY4 count=1
Window [14:11:52-14:11:57] Browser:XXXYXXXY2 count=1
Window [14:11:54-14:11:59] Browser:XXXYXXXY2 count=1
Window [14:11:52-14:11:57] Browser:XXXYXXXY3 count=2
Window [14:11:54-14:11:59] Browser:XXXYXXXY3 count=6
Window [14:11:56-14:12:01] Browser:XXXYXXXY3 count=6
Window [14:11:58-14:12:03] Browser:XXXYXXXY3 count=3
Window [14:11:56-14:12:01] Browser:XXXYXXXY4 count=1
"""
"""Lines 697 to 707 of the document."""


@both
def test_the_fifth_action_is_asked_about_in_the_log_of_the_program(
    variant: KafkaStreams, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with on_driver(variant) as run:
        run.write(event("a", second) for second in range(4))
        assert "Asking" not in caplog.text

        run.write([event("a", 4)])
        assert "Asking captcha for a" in caplog.text
        assert [(each.key, each.value) for each in run.read("ask-captcha")] == [("a", 5)]


@both
def test_a_verified_browser_is_never_asked(
    variant: KafkaStreams, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with on_driver(variant) as run:
        run.write([event("a", 0, VERIFIED), *(event("a", second) for second in range(9))])

        assert "Asking" not in caplog.text
        assert [(each.key, each.value) for each in run.read("captchaStream")] == [("a", 1)]


def test_the_stores_have_the_names_of_the_document() -> None:
    with on_driver(app) as run:
        run.write([event("a", 0), event("b", 1, VERIFIED)])
        assert run.driver.get_key_value_store("browserActionsCountStore").get("a") == 1
        assert run.driver.get_key_value_store("captchaStore").get("b") == 1
        assert len([*run.driver.get_window_store("counterStore").all()]) > 0
    with on_driver(global_app) as run:
        run.write([event("b", 1, VERIFIED)])
        assert run.driver.get_key_value_store("captchaStreamStore").get("b") == 1


def test_the_windows_are_those_that_the_document_prints(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with on_driver(app, commit_each_record=False) as run:
        run.write(printed())
        assert caplog.messages == []  # the cache holds results back until a commit

        run.driver.commit()

    windows = [text for text in caplog.messages if text.startswith("Window")]
    assert windows[:11] == LINES.splitlines()
    # The document goes no further: the last action is in one more window.
    assert windows[11:] == ["Window [14:11:58-14:12:03] Browser:XXXYXXXY4 count=1"]


def test_with_the_wall_clock_windows_are_those_of_the_time_of_processing() -> None:
    now = 1_800_000_000_000
    with on_driver(wall_clock_app, initial_wall_clock_time=now) as run:
        run.write([event("a", 0), event("a", 3600)])

        starts = {each.key.window.start: each.value for each in run.read("browser-windows")}
        assert {clock(start) for start in starts} == {"07:59:56", "07:59:58", "08:00:00"}
        assert set(starts.values()) == {2}


@both
def test_bad_input_is_counted_and_kept(variant: KafkaStreams) -> None:
    assert fates_of(variant, event("a", 0)) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.PROCESSED,  # as all lines of the document: the appender gives no key
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.DEAD_LETTER,
        "future": Fate.DEAD_LETTER,
    }


def test_end_to_end_active_browsers_are_asked_and_verified_ones_are_not(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(islice(feed(), 200))

        asked = {each.key for each in run.read("ask-captcha")}
        verified = {each.key for each in run.read("captchaStream")}
    assert "XXXYXXXY3" in asked
    assert verified
    assert asked & verified == set()
