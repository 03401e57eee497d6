from __future__ import annotations

from pathlib import Path

from chaos.contract import AT_LEAST_ONCE
from chaos.ledger import (
    CHECKS,
    HEADING,
    PAGE,
    FaultEntry,
    RoundEntry,
    append,
    read,
    summary,
)


def _entry(**fields: object) -> RoundEntry:
    fault = FaultEntry("kill-jvm", "1 killed", second=2.5, recovery=7.25, starts=1)
    made = {"seed": 3, "commit": "abc", "broker": "kafka", "workload": "join", "faults": [fault]}
    return RoundEntry(**{**made, "records": 100, "verdict": {"lost": 0}, **fields})  # type: ignore[arg-type]


def test_the_ledger_gives_back_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"

    append(_entry(), path)
    append(_entry(seed=4), path)

    assert list(read(path)) == [_entry(), _entry(seed=4)]


def test_a_round_is_clean_if_nothing_was_found_and_nothing_went_wrong() -> None:
    assert _entry().is_clean
    assert not _entry(verdict={"lost": 1}).is_clean
    assert not _entry(problems=["No recovery"]).is_clean


def test_a_summary_counts_faults_and_names_the_seeds_that_were_not_clean() -> None:
    shown = summary([_entry(), _entry(seed=9, verdict={"lost": 2})])

    assert "2 faults in 2 rounds with 200 input records: 2 lost." in shown
    assert "| kill-jvm | 2 |" in shown
    assert "| join | kafka | 3 9 | 2 | 9 |" in shown


def test_a_summary_counts_the_rounds_that_had_every_check_of_today() -> None:
    earlier = [_entry(seed=3), _entry(seed=145), _entry(seed=150)]
    newest = [_entry(seed=5, checks=CHECKS, commit="new"), _entry(seed=6, checks=CHECKS)]

    assert "None of them had every check of today." in summary(earlier)
    shown = summary([*earlier, *newest])
    assert "2 of them had every check of today, in 2 rounds since version new." in shown
    counted = [line.split("|")[2:4] for line in shown.splitlines() if line.startswith("| and ")]
    assert [[int(each) for each in row] for row in counted] == [[1, 1], [1, 1], [0, 0], [2, 2]]


def test_a_summary_names_the_rounds_that_compared_memory_and_files() -> None:
    long_ago = [_entry(seed=5, grown_megabytes=-8.1), _entry(seed=6), _entry(seed=7, grown_files=2)]
    today = [_entry(seed=8, compared=0), _entry(seed=9, compared=1)]

    shown = summary([*long_ago, *today])

    assert "3 of all 5 rounds compared memory and files: seeds 5 7 9." in shown
    assert "0 of all 1 rounds compared memory and files." in summary([_entry()])


def test_a_summary_keeps_rounds_apart_that_promise_less() -> None:
    repeating = _entry(seed=9, guarantee=AT_LEAST_ONCE, repeated=7, workload="count")

    shown = summary([_entry(), repeating])

    assert "1 faults in 1 rounds with 100 input records: 0 lost." in shown
    assert "At least once: 1 faults in 1 rounds with 100 input records: 0 lost. 7 results" in shown
    assert "| kill-jvm | 1 |" in shown
    assert "| count, at_least_once | kafka | 9 | 1 | none |" in shown


def test_the_page_shows_the_ledger() -> None:
    assert PAGE.read_text().endswith(f"{HEADING}\n{summary(list(read()))}")
