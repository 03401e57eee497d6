"""The tables and the joins, with the words and letters that they read."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord
from headrace.examples.variants import Variant
from headrace.examples.words.feed import START, TOPICS, feed

ALPHABETS = {"A": "A is the first letter in English.", "B": "B is the second letter in English."}
ABBREVIATIONS = [("A", "Apple"), ("B", "Bus"), ("C", "Cat")]
JOINED = {"alphabets": 2, "alphabets_abbreviations": 2}


def letters() -> Iterator[FeedRecord]:
    """Yield the words of the slides, and then letters that look them up."""
    yield from feed()
    for number in range(8):
        yield FeedRecord("letters", number, "AB"[number % 2], START + 60_000 + 1000 * number)


def alphabets() -> Iterator[FeedRecord]:
    """Yield the letters, and then abbreviations; the last one closes the windows of the joins."""
    for letter, description in ALPHABETS.items():
        yield FeedRecord("alphabets", letter, description, START)
    for number, (letter, word) in enumerate(ABBREVIATIONS):
        yield FeedRecord("alphabets_abbreviations", letter, word, START + 1000 * number)
    for partition in range(2):
        end = START + 60_000
        yield FeedRecord("alphabets_abbreviations", "Z", "Zoo", end, partition)


VARIANTS = {
    "table": Variant("tables:words_table", TOPICS, feed),
    "global-table": Variant("tables:words_global_table", {**TOPICS, "letters": 2}, letters),
    "stream-table": Variant("joins:stream_table_app", JOINED, alphabets),
    "stream-global-table": Variant(
        "joins:stream_global_table_app", {**JOINED, "alphabets_abbreviations": 4}, alphabets
    ),
    "table-table": Variant("joins:table_table_app", JOINED, alphabets),
    "stream-stream": Variant("joins:stream_stream_app", JOINED, alphabets),
}
