"""``python -m chaos.queries --answers 100000 --kills 20``: reads, kills, and prints the figures."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from chaos.queries.campaign import Campaign, Outcome, Plan
from chaos.queries.kills import KINDS
from chaos.queries.program import HISTORIES
from tests.kafka_broker import RunningBroker, start_cluster

_CLUSTER: Any = {
    "java_options": ["-XX:TieredStopAtLevel=1", "-Xmx256m"],
    "properties": {"broker.session.timeout.ms": "3000"},  # so that a lost broker is soon missed
}


def main() -> int:
    """Run a campaign; return 1 if an invariant does not hold."""
    parser = argparse.ArgumentParser("python -m chaos.queries", description=__doc__)
    parser.add_argument("--answers", type=int, default=100_000, help="pinned answers to take")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--kind", action="append", choices=KINDS, help="only kills of these kinds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kafka", action="store_true", help="on three Kafka brokers")
    parser.add_argument("--spark", action="store_true", help="run the application on Spark")
    parser.add_argument("--at-least-once", action="store_true", help="without transactions")
    parser.add_argument(
        "--recovery", type=float, default=60.0, help="in how many seconds all is ready again"
    )
    parser.add_argument(
        "--stop-seconds", type=float, default=75.0, help="for how long a process stands still"
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="in how many minutes all answers are taken"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes must end, too
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="headrace-queries-")))
        brokers: Sequence[RunningBroker] = ()
        if given.kafka:
            brokers = ends.enter_context(start_cluster(folder / "kafka", **_CLUSTER)).brokers
        plan = Plan(
            given.answers,
            given.kills,
            given.seed,
            brokers,
            given.spark,
            "at_least_once" if given.at_least_once else "exactly_once_v2",
            recovery_seconds=given.recovery,
            kinds=given.kind or KINDS,
            stop_seconds=given.stop_seconds,
            minutes=given.minutes,
        )
        outcome = Campaign(plan, folder, partial(print, flush=True)).run()
    print(summary(outcome))
    print(*outcome.problems, *outcome.tails, sep="\n", file=sys.stderr)
    return 1 if outcome.problems else 0


def summary(outcome: Outcome) -> str:
    """Return the figures of a campaign, as a page shows them."""
    counts = outcome.counts
    refused = sum(count for kind, count in counts.items() if kind.startswith("refused"))
    kills = ", ".join(f"{count} {kind}" for kind, count in outcome.kills.items())
    others = ", ".join(
        f"{counts.get(kind, 0):,} {kind}"
        for kind in (
            *HISTORIES,
            "merged",
            "paged",
            "min",
            "unpinned",
            "own write",
            "watched",
            "woken",
        )
    )
    return (
        f"{counts.get('pinned', 0):,} pinned answers of {outcome.snapshots:,} snapshots; {others}; "
        f"{counts.get('cut', 0)} cuts of watches, {counts.get('reset', 0)} resets; "
        f"{outcome.compacted:,} late versions compacted; {refused:,} refusals; "
        f"kills: {kills}; longest gap {outcome.longest_gap:.2f} s, "
        f"all ready again within {outcome.slowest_recovery:.1f} s; {outcome.seconds:.0f} s; "
        f"{len(outcome.problems)} wrong."
    )


if __name__ == "__main__":
    raise SystemExit(main())
