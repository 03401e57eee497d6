"""The actions behind the windows that the document prints, and then browsers without end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

from headrace.examples.captcha.model import LogEvent
from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"logs": 2}
PER_SECOND = 10
TRACED = 7
MINUTE = int(datetime(2017, 1, 15, 14, 11, tzinfo=UTC).timestamp() * 1000)
ACTION = "com.balamaci.log.BrowserAction"
VERIFIED = "com.balamaci.log.BrowserCaptchaVerified"
PRINTED = [
    *[(0, 55.0), (4, 55.1), (2, 55.2), (3, 55.3), (3, 55.4)],
    *[(3, 57.0), (3, 57.1), (3, 57.2), (3, 58.0), (3, 59.0), (3, 59.1), (4, 59.2)],
]
"""The browser and the second of each action."""


def event(browser: str, second: float, logger: str = ACTION) -> FeedRecord:
    timestamp = MINUTE + round(second * 1000)
    return FeedRecord("logs", None, LogEvent(logger, browser), timestamp)


def printed() -> Iterator[FeedRecord]:
    for browser, second in PRINTED:
        yield event(f"XXXYXXXY{browser}", second)


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    chance = random.Random(seed)
    yield from printed()
    for number in count(600):
        # Every tenth browser passes a captcha at once, and is never asked again.
        browser = f"XXXYXXXY{chance.randrange(5, 50)}"
        is_verified = browser.endswith("9") and chance.random() < 0.5
        yield event(browser, number / 10, VERIFIED if is_verified else ACTION)


if __name__ == "__main__":
    print_lines(feed())
