"""The views of the document's table, in a random order: alice 10, bob 2, carol 6."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord, print_lines
from headrace.examples.user_views.model import View

TOPICS = {"views": 2}
PER_SECOND = 2
VIEWS = {"alice": 10, "bob": 2, "carol": 6}
START = 1_700_000_000_000


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    chance = random.Random(seed)
    users = [user for user, views in VIEWS.items() for _ in range(views)]
    chance.shuffle(users)
    for number, user in enumerate(users):
        page = chance.choice(["/", "/blog", "/prices"])
        yield FeedRecord("views", None, View(user, page), START + 1000 * number)


if __name__ == "__main__":
    print_lines(feed())
