"""``python -m chaos.hostile --count 100000``: feeds hostile records, and prints the sums."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from chaos.hostile.campaign import Campaign, Outcome, Result
from chaos.ledger import table
from tests.kafka_broker import start_broker

_ANY_TIME = {"log.message.timestamp.after.max.ms": str(2**63 - 1)}
"""Changelogs and repartition topics have the broker's default."""


def main() -> int:
    """Run the campaign; return 1 if a sum does not match or memory grew."""
    parser = argparse.ArgumentParser("chaos.hostile", description="Feed hostile records.")
    parser.add_argument("--count", type=int, default=100_000, help="records in all topics")
    parser.add_argument("--seed", type=int, default=0)
    log_choice = parser.add_mutually_exclusive_group()
    log_choice.add_argument(
        "--bootstrap-servers", help="where Kafka is; it must accept timestamps of 9999"
    )
    log_choice.add_argument("--kafka", action="store_true", help="start a Kafka broker")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # a line for each record that is dropped
    began = time.monotonic()
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="headrace-hostile-")))
        servers = given.bootstrap_servers
        if given.kafka:
            broker = start_broker(folder / "kafka", properties=_ANY_TIME)
            servers = ends.enter_context(broker).address
        campaign = Campaign(given.count, given.seed, folder, servers)
        result = campaign.run(partial(print, flush=True))
    print(summary(result))
    print(f"{time.monotonic() - began:.0f} s. {'Clean.' if not result.problems else ''}")
    print(*result.problems, sep="\n", file=sys.stderr)
    return 1 if result.problems else 0


def summary(result: Result) -> str:
    """Return the sums of each application, as a page shows them."""
    tables = [line for outcome in result.outcomes for line in _lines(outcome)]
    held = ", ".join(f"{megabytes:,}" for megabytes in result.megabytes)
    return "\n".join([*tables, f"Most memory by quarter: {held} MB."])


def _lines(outcome: Outcome) -> list[str]:
    rows: list[tuple[object, ...]] = []
    for sums in outcome.sums:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in sums.dropped.items())
        rows.append((sums.topic, f"{sums.records:,}", f"{sums.out:,}", reasons or "none"))
    records, out = (
        sum(getattr(each, name) for each in outcome.sums) for name in ("records", "out")
    )
    rows.append(("all", f"{records:,}", f"{out:,}", f"{records - out:,}"))
    lines = table(("input topic", "in", "out", "dropped"), rows)
    return [f"Handlers: {outcome.name}. Dead letters: {outcome.dead_letters:,}.", "", *lines, ""]


if __name__ == "__main__":
    raise SystemExit(main())
