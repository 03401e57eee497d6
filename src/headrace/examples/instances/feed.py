"""Events of four keys, in a random order: key-A 4, key-B 7, key-C 3, key-D 2."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"events": 6}
PER_SECOND = 5
COUNTS = {"key-A": 4, "key-B": 7, "key-C": 3, "key-D": 2}
START = 1_540_000_000_000


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    chance = random.Random(seed)
    keys = [key for key, count in COUNTS.items() for _ in range(count)]
    chance.shuffle(keys)
    for number, key in enumerate(keys):
        yield FeedRecord("events", key, "seen", START + 1000 * number)


if __name__ == "__main__":
    print_lines(feed())
