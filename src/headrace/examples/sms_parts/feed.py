"""Parts of 30 messages, mixed; some come twice, and three messages lack a part."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord, print_lines
from headrace.examples.sms_parts.model import MessagePart

TOPICS = {"incoming-msg-parts": 2}
PER_SECOND = 5
START = 1_700_000_000_000
MESSAGES = 30
INCOMPLETE = {"msg-10", "msg-20", "msg-30"}


def parts_of(key: str, texts: list[str]) -> list[FeedRecord]:
    """Return the records of a message, in order."""
    return [
        FeedRecord("incoming-msg-parts", key, MessagePart(number, len(texts), text), START)
        for number, text in enumerate(texts, 1)
    ]


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield the parts in a random order."""
    chance = random.Random(seed)
    records = []
    for number in range(1, MESSAGES + 1):
        key = f"msg-{number}"
        parts = parts_of(key, ["hello ", "world", "!"][: 2 + number % 2])
        records += parts[1:] if key in INCOMPLETE else parts
        if number % 6 == 0:
            records.append(parts[-1])
    chance.shuffle(records)
    for number, record in enumerate(records):
        yield record._replace(timestamp=START + 100 * number)


if __name__ == "__main__":
    print_lines(feed())
