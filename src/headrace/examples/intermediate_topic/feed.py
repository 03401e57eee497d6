"""Views of products by 40 browsers, in a topic with one partition."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord, print_lines
from headrace.examples.intermediate_topic.model import View

TOPICS = {"logs": 1, "my-topic": 4}
PER_SECOND = 20
START = 1_700_000_000_000


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield 100 views; one is of a product that does not exist."""
    chance = random.Random(seed)
    for number in range(100):
        product = 99 if number == 50 else chance.randint(1, 20)
        view = View(f"browser-{chance.randint(1, 40)}", product)
        yield FeedRecord("logs", None, view, START + 50 * number)


if __name__ == "__main__":
    print_lines(feed())
