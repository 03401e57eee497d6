"""A simulated provider: the tables of the slides, then 20 messages with responses and reports."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.examples.delivery_reports.model import DeliveryReport, Message, MessagePart
from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"send-in-progress": 2, "msg-parts-send-resp": 2, "msg-parts-delivery": 2}
PER_SECOND = 5
START = 1_700_000_000_000
IN_PROGRESS = {"1111": 2, "2222": 1, "3333": 2, "4444": 2}
"""The table of the slide: message ids, and how many parts each message has."""
RESPONSES = [
    ("1111", 1, 2, "001"),
    ("1111", 2, 2, "002"),
    ("2222", 1, 1, "003"),
    ("3333", 1, 2, "004"),
]
"""The table of the slide: message ids, the parts, and the ids that the provider gave them."""
REPORTS = ["1-001", "1-002", "1-003", "1-004"]


def message(key: str, parts: int, time: int = START) -> FeedRecord:
    """Return the record of a message that is being sent."""
    return FeedRecord("send-in-progress", key, Message(f"message {key}", parts), time)


def response(key: str, part: int, of: int, out_id: str, time: int = START) -> FeedRecord:
    """Return the response of provider 1 for a part."""
    return FeedRecord("msg-parts-send-resp", key, MessagePart(key, part, of, "1", out_id), time)


def report(key: str, time: int = START) -> FeedRecord:
    """Return the report that a part has reached the phone."""
    return FeedRecord("msg-parts-delivery", key, DeliveryReport("DELIVERED"), time)


def slides() -> list[FeedRecord]:
    """Return the tables of the slides, but for the reports."""
    return [
        *(message(key, parts) for key, parts in IN_PROGRESS.items()),
        *(response(*row) for row in RESPONSES),
    ]


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield messages with responses and reports, which overtake each other; one of ten is lost."""
    yield from slides()
    yield from map(report, REPORTS)
    chance = random.Random(seed)
    records = []
    for number in range(20):
        key, parts = str(5000 + number), chance.randint(1, 3)
        time = START + 1000 * (number + 1)
        records.append(message(key, parts, time))
        for part in range(1, parts + 1):
            out_id = f"{number:02}{part}x"
            if chance.random() > 0.1:
                sent_at = time + chance.randint(1, 5000)
                records.append(response(key, part, parts, out_id, sent_at))
                records.append(report(f"1-{out_id}", sent_at + chance.randint(-500, 5000)))
    yield from sorted(records, key=lambda record: record.timestamp)


if __name__ == "__main__":
    print_lines(feed())
