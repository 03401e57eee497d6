"""The tables of promises and failures in `docs/queries-protocol.md` name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROMISES = "## The promises and their tests"
FAILURES = "## Failures and their tests"
EVENTS = 23
"""How many events the protocol names."""


def rows_below(heading: str) -> list[str]:
    """Return the rows of the table of a section."""
    _, _, text = (ROOT / "docs" / "queries-protocol.md").read_text().partition(f"{heading}\n")
    section, _, _ = text.partition("\n## ")
    return [line for line in section.splitlines() if line.startswith("| ") and "---" not in line][
        1:
    ]


def named_in(rows: list[str]) -> list[list[tuple[str, str]]]:
    """Return the file and the name of each test of each row."""
    return [re.findall(r"`([a-z_/]+\.py)` `(test_\w+)`", row) for row in rows]


def missing_from(named: list[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [
        (path, name)
        for row in named
        for path, name in row
        if not re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
    ]


def test_every_failure_of_queries_has_a_test() -> None:
    named = named_in(rows_below(FAILURES))

    assert len(named) == EVENTS
    assert all(named)
    assert missing_from(named) == []


def test_every_promise_of_queries_is_shown() -> None:
    rows = rows_below(PROMISES)

    assert [row.split(" | ")[0] for row in rows] == [f"| Q{number}" for number in range(1, 13)]
    assert all("`" in row.split(" | ")[2] for row in rows)
    assert missing_from(named_in(rows)) == []
