"""``python -m chaos.load --minutes 20``: holds a load, prints progress, and keeps the result."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from random import Random

from chaos.ledger import LOAD
from chaos.load.results import append, summary, write_page
from chaos.load.running import Load, Plan


def main() -> int:
    """Run it; return 1 if it was not clean."""
    given = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what was started
    plan = Plan(given.minutes, given.every, given.backlog, given.share, given.seed)
    folder = Path(tempfile.mkdtemp(prefix="headrace-load-"))
    show = partial(print, flush=True)
    with Load(plan, folder, show) as load:
        load.measure_maximum()
        load.hold()
        entry = load.finish()
    append(entry, given.results)
    if given.results == LOAD:
        write_page()
    print(summary([entry]))
    if not entry.is_clean:
        print("\n".join(entry.problems), f"Everything is in {folder}.", sep="\n", file=sys.stderr)
        return 1
    if not given.keep:
        shutil.rmtree(folder)
    print("Clean.")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("chaos.load", description="Hold a load, with restarts.")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--every", type=float, default=180, help="seconds between restarts")
    parser.add_argument("--backlog", type=int, default=1_500_000, help="to measure the maximum")
    parser.add_argument("--share", type=float, default=0.6, help="of the maximum that is fed")
    parser.add_argument("--seed", type=int, default=Random().randrange(1_000_000))
    parser.add_argument("--keep", action="store_true", help="the folder of a clean run too")
    parser.add_argument("--results", type=Path, default=LOAD)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
