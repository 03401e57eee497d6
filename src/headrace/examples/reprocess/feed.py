"""Lines of text, with capitals and punctuation."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"lines": 2}
PER_SECOND = 5
START = 1_700_000_000_000
LINES = [
    "Logs unify batch and stream processing",
    "Streams, tables and streams of tables",
    "A topic is a partitioned log",
    "Set the offset to 0, and read the log again",
]


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield 40 lines."""
    chance = random.Random(seed)
    for number in range(40):
        yield FeedRecord("lines", None, chance.choice(LINES), START + 1000 * number)


if __name__ == "__main__":
    print_lines(feed())
