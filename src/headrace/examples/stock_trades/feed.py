"""Trades of four stocks without end, whose prices wander."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import count

from headrace.examples.feeding import FeedRecord, print_lines
from headrace.examples.stock_trades.model import Trade

TOPICS = {"stocks": 2}
PER_SECOND = 20
TRACED = 20
START = 1_538_730_000_000
SYMBOLS = {"ACME": 12000, "AMZN": 188925, "GOOG": 115751, "MSFT": 11213}
"""The symbols, with their first prices in cents."""


def trade(symbol: str, cents: int, timestamp: int, size: int = 100) -> FeedRecord:
    return FeedRecord("stocks", symbol, Trade(symbol, Decimal(cents) / 100, size), timestamp)


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    chance = random.Random(seed)
    prices = dict(SYMBOLS)
    for number in count():
        symbol = chance.choice(list(prices))
        prices[symbol] = max(1, prices[symbol] + chance.randint(-100, 100))
        size = chance.randrange(10, 500, 10)
        yield trade(symbol, prices[symbol], START + 250 * number, size)


if __name__ == "__main__":
    print_lines(feed())
