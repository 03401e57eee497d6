"""Ready-made aggregations and cogrouped streams have the types of their results."""

from __future__ import annotations

from typing import assert_type

from headrace import (
    CogroupedKStream,
    KTable,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Windowed,
    aggregators,
)


def length(word: str) -> int:
    return len(word)


def add_length(key: str, word: str, total: int) -> int:
    return total + len(word)


def add_number(key: str, number: float, total: int) -> int:
    return total + round(number)


def both(key: str, one: int, other: int) -> int:
    return one + other


builder = StreamsBuilder()
words = builder.stream("words", key=str, value=str).group_by_key()
numbers = builder.stream("numbers", key=str, value=float).group_by_key()

assert_type(numbers.aggregate(aggregators.sum()), KTable[str, float])
assert_type(words.aggregate(aggregators.sum(length)), KTable[str, int])
assert_type(words.aggregate(aggregators.min(length)), KTable[str, int])
assert_type(words.aggregate(aggregators.mean(length)), KTable[str, aggregators.Mean])
assert_type(words.aggregate(aggregators.collect(str.upper)), KTable[str, list[str]])
assert_type(words.aggregate(aggregators.top_k(3, by=len)), KTable[str, list[str]])
assert_type(
    words.windowed_by(TimeWindows("1m")).aggregate(aggregators.max(length)),
    KTable[Windowed[str], int],
)
assert_type(
    words.windowed_by(SessionWindows("1m")).aggregate(aggregators.approx_distinct(str.lower)),
    KTable[Windowed[str], aggregators.Distinct],
)

together = words.cogroup(add_length).cogroup(numbers, add_number)
assert_type(together, CogroupedKStream[str, int])
assert_type(together.aggregate(int), KTable[str, int])
assert_type(together.windowed_by(TimeWindows("1m")).aggregate(int), KTable[Windowed[str], int])
sessions = together.windowed_by(SessionWindows("1m"))
assert_type(sessions.aggregate(int, both), KTable[Windowed[str], int])
