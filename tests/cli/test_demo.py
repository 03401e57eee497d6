"""``make demo``, which is ``headrace example orders``, shows results until Ctrl-C."""

from __future__ import annotations

import re

import pytest

from tests.cli.running_example import RunningExample


@pytest.mark.nightly("demo")
@pytest.mark.parametrize(
    ("on_terminal", "results"),
    [
        (True, r"general-orders-revenue +store_\d+ +TotalRevenueWithAddress\("),
        (False, r" INFO running batch \d+ took \d+ ms  in \S+  out [1-9]"),
    ],
    ids=["terminal", "pipe"],
)
def test_the_demo_shows_results_until_ctrl_c_and_says_what_to_try_next(
    monkeypatch: pytest.MonkeyPatch, on_terminal: bool, results: str
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("HEADRACE_LOG_SUMMARY_INTERVAL", "1s")
    with RunningExample("orders", on_terminal=on_terminal) as demo:
        demo.read_until(results)

        assert demo.stopped() == 0

    ended = "NOT_RUNNING" if on_terminal else "went from PENDING_SHUTDOWN to NOT_RUNNING."
    shown, heading, next_steps = demo.said.replace("\r\n", "\n").partition("What to try next")
    assert ended in shown
    assert heading, demo.said
    assert "headrace example orders --trace" in next_steps
    # Neither Java nor Python says a word of its own; all warnings are about skipped orders.
    assert not re.search(r"org\.apache|java\.|Py4J|\.scala|Traceback", demo.said)
    assert not re.search(r"WARN(?!ING Step 'KSTREAM-[A-Z]+-\d+'\s+skipped)", demo.said)
