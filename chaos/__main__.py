"""``python -m chaos``: runs rounds, shows their results and writes them to the ledger."""

from __future__ import annotations

import argparse
import logging
import math
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from chaos.contract import AT_LEAST_ONCE, EXACTLY_ONCE, GUARANTEES
from chaos.faults import FAMILIES, FAULTS
from chaos.ledger import LEDGER, RoundEntry, append, write_page
from chaos.patching import BREAKS
from chaos.rounds import Plan, run_round
from chaos.sites import BROKERS
from chaos.workloads import WORKLOADS


def main() -> int:
    """Run the rounds; return 1 if one of them was not clean."""
    given = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what was started
    logging.getLogger("headrace").setLevel(logging.CRITICAL)  # that brokers are away is known
    console = Console(width=None if sys.stdout.isatty() else 140)
    entries: list[RoundEntry] = []
    for plan in _plans(given):
        folder = Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
        console.print(f"[bold]{plan.workload}[/] on {plan.broker}, seed {plan.seed} …")
        entry = run_round(plan, folder, console.print)
        entries.append(entry)
        if plan.mistake is None:
            append(entry, given.ledger)
            if given.ledger == LEDGER:
                write_page()
        if entry.is_clean and not given.keep:
            shutil.rmtree(folder)
        else:
            console.print("\n".join(entry.problems), markup=False)
            again = f"Again: {plan.command}\nEverything is in {folder}."
            console.print(again, markup=False, soft_wrap=True)  # one line, to be copied
    console.print(_table(entries))
    return 0 if all(entry.is_clean for entry in entries) else 1


def _plans(given: argparse.Namespace) -> Iterator[Plan]:
    """Yield the rounds: each workload meets each broker in turn, each with a seed of its own."""
    cycle = math.lcm(len(given.broker), len(given.workloads))
    for number in range(given.rounds):
        turn = number + number // cycle  # a whole cycle has met only some of the pairs
        yield Plan(
            broker=given.broker[turn % len(given.broker)],
            workload=given.workloads[number % len(given.workloads)],
            seed=given.seed + number,
            kinds=tuple(given.faults),
            count=given.count,
            mistake=given.mistake,
            guarantee=given.guarantee,
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("chaos", description="Break an application on purpose.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    parser.add_argument("--count", type=int, default=12, help="faults in a round")
    for name, choices in (
        ("broker", BROKERS),
        ("workloads", tuple(WORKLOADS)),
        ("faults", tuple(FAULTS)),
    ):
        parser.add_argument(f"--{name}", nargs="+", choices=choices, default=choices, metavar=name)
    parser.add_argument(
        "--families",
        nargs="+",
        choices=tuple(FAMILIES),
        metavar="family",
        help="all faults of these, on the workloads that they are for",
    )
    parser.add_argument("--mistake", choices=tuple(BREAKS), help="build it in; not in the ledger")
    parser.add_argument(
        "--guarantee",
        choices=GUARANTEES,
        default=EXACTLY_ONCE,
        help="at_least_once: for running_aggregate",
    )
    parser.add_argument("--keep", action="store_true", help="the folders of clean rounds too")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    given = parser.parse_args()
    if given.families:
        _choose_families(given)
    if given.guarantee == AT_LEAST_ONCE:
        # A topic that is read back would count what it has twice.
        given.workloads = ["running_aggregate"]
    for broker in given.broker:
        plan = Plan(broker, given.workloads[0], 0, tuple(given.faults), guarantee=given.guarantee)
        if next(plan.faults(), None) is None:
            parser.error(f"none of these faults can happen on {broker}, {given.guarantee}")
    if given.seed is None:
        given.seed = Random().randrange(1_000_000)  # shown in the table
    return given


def _choose_families(given: argparse.Namespace) -> None:
    """Give the rounds the faults of some families, on the workloads that those are for."""
    chosen = [fault for name in given.families for fault in FAMILIES[name]]
    given.faults = [fault.kind for fault in chosen]
    own = [fault.workload for fault in chosen if fault.workload is not None]
    if len(own) == len(chosen):
        given.workloads = list(dict.fromkeys(own))


def _table(entries: list[RoundEntry]) -> Table:
    table = Table()
    for name in ("seed", "broker", "workload", "faults", "records", "slowest", "MB", "verdict"):
        table.add_column(name)
    for entry in entries:
        wrong = {kind: count for kind, count in entry.verdict.items() if count}
        table.add_row(
            str(entry.seed),
            entry.broker,
            entry.workload,
            str(len(entry.faults)),
            str(entry.records),
            f"{max((fault.recovery for fault in entry.faults), default=0):.1f} s",
            f"{entry.megabytes:.0f}",
            "clean" if entry.is_clean else f"{wrong or ''} {len(entry.problems)} problems",
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
