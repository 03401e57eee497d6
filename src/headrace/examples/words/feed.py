"""The words of the slides, then random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"words": 2}
PER_SECOND = 2
START = 1_670_131_591_000
SLIDES = [("A", "Apple"), ("A", "Alpha"), ("B", "Bus"), ("A", "Ant"), ("B", "Baby")]
OTHERS = ["Car", "Cat", "Cloud", "Air", "Arrow", "Boat", "Bell", "Dog", "Door", "Desert"]


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield 60 words by their first letter; a record without a key and a deletion among them."""
    chance = random.Random(seed)
    pairs: list[tuple[str | None, str | None]] = [*SLIDES, (None, "Nobody"), ("A", None)]
    pairs += [(word[0], word) for word in chance.choices(OTHERS, k=60 - len(pairs))]
    for number, (key, word) in enumerate(pairs):
        yield FeedRecord("words", key, word, START + 1000 * number)


if __name__ == "__main__":
    print_lines(feed())
