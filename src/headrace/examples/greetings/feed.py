"""Greetings in English and Spanish, and one bad record of each kind of error."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from headrace.examples.feeding import FeedRecord, print_lines
from headrace.examples.greetings.model import Greeting

TOPICS = {"greetings": 2, "greetings_spanish": 2}
PER_SECOND = 2
START = datetime(2022, 12, 4, 5, 26, 31, 60293)
START_MS = 1_670_131_591_060
ENGLISH = ["Good Morning", "Good Afternoon", "Good Night", "Hello", "Hi"]
SPANISH = ["Buenos Dias", "Buenas Tardes", "Buenas Noches", "Hola"]
BAD = {
    10: b'{"message":"Good Morning"',  # deserialization
    20: b'{"message":"Transient Error","timeStamp":"2022-12-04T05:26:51.060293"}',  # application
    30: b'{"message":"Ring \\u0007","timeStamp":"2022-12-04T05:27:01.060293"}',  # serialization
}


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield 40 records, three of them bad: one for each row of the table of errors."""
    chance = random.Random(seed)
    for number in range(40):
        time = START_MS + 1000 * number
        if number in BAD:
            yield FeedRecord("greetings", "BAD", BAD[number], time)
            continue
        topic = chance.choice(["greetings", "greetings_spanish"])
        message = chance.choice(ENGLISH if topic == "greetings" else SPANISH)
        key = "".join(word[0] for word in message.split())
        yield FeedRecord(topic, key, Greeting(message, START + timedelta(seconds=number)), time)


if __name__ == "__main__":
    print_lines(feed())
