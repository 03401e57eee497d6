"""An instance that is wrong on purpose: ``python -m chaos.queries.mistakes NAME serve …``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.queries.tokens import Token


def answer_with_another_snapshot() -> None:
    """A pinned read gets the newest entries under the token that was asked for."""
    at = KeptSnapshots.at

    def newest(kept: KeptSnapshots, token: Token) -> ShownSnapshot:
        return replace(at(kept, token), view=[*kept][-1].view)

    KeptSnapshots.at = newest  # type: ignore[assignment, method-assign]


MISTAKES: dict[str, Callable[[], None]] = {
    "another-snapshot": answer_with_another_snapshot,
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
