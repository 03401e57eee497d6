"""The console script ``headrace``. It imports the package late, so that Ctrl-C cannot hit that."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt ends it with 130, also while modules are loaded."""
    try:
        from headrace.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
