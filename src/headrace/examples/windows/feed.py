"""The times of the slides in their order, then tickets for three movies on two days."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from headrace.examples.check_time import DAY
from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"window-words": 2, "tickets": 2}
PER_SECOND = 5
TRACED = 3  # the late record of the slide
MOVIES = {"Avatar": Decimal("12.50"), "Alien": Decimal("9.90"), "Amelie": Decimal("8.00")}
EIGHT = int(datetime(2022, 12, 5, 8, tzinfo=UTC).timestamp() * 1000)
GRACE = [4_000, 54_000, 65_000, 58_000, 73_000]
"""8:00:04 8:00:54 8:01:05 8:00:58 8:01:13, as the slide has them, in milliseconds after eight."""
OPENING = EIGHT - EIGHT % DAY + 19 * 60 * 60 * 1000
"""Seven in the evening of the opening day."""


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield the records of the slide about grace, and 60 tickets."""
    chance = random.Random(seed)
    for time in GRACE:
        yield FeedRecord("window-words", "A", "Apple", EIGHT + time)
    for number in range(60):
        movie = chance.choice(list(MOVIES))
        seat = f"{chance.choice('ABCDEF')}{chance.randint(1, 20)}"
        time = OPENING + (number // 40) * DAY + number * 1000
        yield FeedRecord("tickets", movie, {"seat": seat, "price": MOVIES[movie]}, time)


if __name__ == "__main__":
    print_lines(feed())
