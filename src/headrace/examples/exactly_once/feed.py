"""Payments of five accounts, and one of a slow account in a partition of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.examples.exactly_once.app import SLOW
from headrace.examples.exactly_once.model import Payment
from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"payments": 2}
PER_SECOND = 5
START = 1_700_000_000_000


def payment(account: str, number: int, cents: int, partition: int = 0) -> FeedRecord:
    """Return the record of a payment."""
    return FeedRecord("payments", account, Payment(f"P-{number}", cents), START + number, partition)


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield 20 payments in partition 0, and the slow one in partition 1."""
    chance = random.Random(seed)
    for number in range(20):
        yield payment(chance.choice(["ann", "bob", "eve"]), number, chance.randint(100, 9999))
    yield payment(SLOW, 20, 500, partition=1)


if __name__ == "__main__":
    print_lines(feed())
