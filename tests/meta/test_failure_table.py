"""The table of failures in `docs/queries-protocol.md` names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADING = "## Failures and their tests"
EVENTS = 23
"""How many events the protocol names."""


def test_every_failure_of_queries_has_a_test() -> None:
    _, _, table = (ROOT / "docs" / "queries-protocol.md").read_text().partition(HEADING)
    rows = [line for line in table.splitlines() if line.startswith("| ") and "`" in line]

    named = [re.findall(r"`([a-z_/]+\.py)` `(test_\w+)`", row) for row in rows]

    assert len(rows) == EVENTS
    assert all(named)
    missing = [
        (path, name)
        for row in named
        for path, name in row
        if not re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert missing == []
