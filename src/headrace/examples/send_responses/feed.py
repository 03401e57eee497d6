"""A simulated provider: the tables of the slides, then 20 messages with random responses."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord, print_lines
from headrace.examples.send_responses.model import Message, MessagePart

TOPICS = {"send-in-progress": 2, "msg-parts-send-resp": 2}
PER_SECOND = 5
START = 1_700_000_000_000
IN_PROGRESS = {"1111": 2, "2222": 1, "3333": 2, "4444": 2}
"""The table of the slide: message ids, and how many parts each message has."""
RESPONSES = [("1111", 1, 2), ("1111", 2, 2), ("2222", 1, 2), ("3333", 1, 2)]
"""The table of the slide: message ids, and the parts; 2222 has one part, whatever this says."""


def message(key: str, parts: int, time: int = START) -> FeedRecord:
    """Return the record of a message that is being sent."""
    return FeedRecord("send-in-progress", key, Message(f"message {key}", parts), time)


def response(key: str, part: int, of: int, time: int = START) -> FeedRecord:
    """Return the response of the provider for a part."""
    return FeedRecord("msg-parts-send-resp", key, MessagePart(part, of), time)


def slides() -> list[FeedRecord]:
    """Return the tables of the slides."""
    return [
        *(message(key, parts) for key, parts in IN_PROGRESS.items()),
        *(response(*row) for row in RESPONSES),
    ]


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield messages and, up to 5 s later, responses; the provider loses one of ten."""
    yield from slides()
    chance = random.Random(seed)
    records = []
    for number in range(20):
        key, parts = str(5000 + number), chance.randint(1, 3)
        time = START + 1000 * (number + 1)
        records.append(message(key, parts, time))
        sent = [part for part in range(1, parts + 1) if chance.random() > 0.1]
        records += [response(key, part, parts, time + chance.randint(1, 5000)) for part in sent]
    yield from sorted(records, key=lambda record: record.timestamp)


if __name__ == "__main__":
    print_lines(feed())
