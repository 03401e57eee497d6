"""Views of ten products without end, some far more popular than others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"logs": 2}
PER_SECOND = 20
TRACED = 20
START = 1_500_000_000_000
PRODUCTS = range(1, 11)
BROWSERS = ["Chrome", "Firefox", "Safari"]


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    chance = random.Random(seed)
    for number in count():
        (product,) = chance.choices(PRODUCTS, weights=[1 / each for each in PRODUCTS])
        yield FeedRecord("logs", product, chance.choice(BROWSERS), START + 50 * number)


if __name__ == "__main__":
    print_lines(feed())
