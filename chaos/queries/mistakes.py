"""An instance that is wrong on purpose: ``python -m chaos.queries.mistakes NAME serve …``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from headrace.queries.copy.snapshot_log import SnapshotLog
from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.queries.tokens import Token
from headrace.runtime.snapshots import SnapshotRecord


def answer_with_another_snapshot() -> None:
    """A pinned read gets the newest entries under the token that was asked for."""
    at = KeptSnapshots.at

    def newest(kept: KeptSnapshots, token: Token) -> ShownSnapshot:
        return replace(at(kept, token), view=[*kept][-1].view)

    KeptSnapshots.at = newest  # type: ignore[assignment, method-assign]


def stand_still() -> None:
    """The copy uses no snapshot record after its first few, and calls itself ready."""
    add, taken = SnapshotLog.add, 0

    def add_some(log: SnapshotLog, record: SnapshotRecord, now: int) -> None:
        nonlocal taken
        taken += 1
        if taken <= _TAKEN:
            add(log, record, now)

    SnapshotLog.add = add_some  # type: ignore[assignment, method-assign]


_TAKEN = 30
"""After so many records a copy stands still."""

MISTAKES: dict[str, Callable[[], None]] = {
    "another-snapshot": answer_with_another_snapshot,
    "frozen": stand_still,
}
"""The mistakes, by name."""


def main() -> None:
    """Make the mistake, and run the command line."""
    name = sys.argv.pop(1)
    MISTAKES[name]()
    from headrace.cli.main import main as headrace

    headrace()


if __name__ == "__main__":
    main()
