"""A windowed aggregation gives windowed keys, and their type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from headrace import (
    EmitStrategy,
    KStream,
    KTable,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Window,
    Windowed,
)


@dataclass
class Order:
    customer: str
    amount: float


@dataclass
class Revenue:
    orders: int = 0
    total: float = 0.0


def add(customer: str, order: Order, revenue: Revenue) -> Revenue:
    return Revenue(revenue.orders + 1, revenue.total + order.amount)


def both(customer: str, left: Revenue, right: Revenue) -> Revenue:
    return Revenue(left.orders + right.orders, left.total + right.total)


def larger(left: Order, right: Order) -> Order:
    return left if left.amount > right.amount else right


builder = StreamsBuilder()
by_customer = builder.stream("orders", key=str, value=Order).group_by_key()

windowed = by_customer.windowed_by(TimeWindows("15s", grace="5s"))
assert_type(windowed.count(), KTable[Windowed[str], int])
assert_type(windowed.reduce(larger), KTable[Windowed[str], Order])
assert_type(windowed.aggregate(Revenue, add), KTable[Windowed[str], Revenue])
assert_type(windowed.count().to_stream(), KStream[Windowed[str], int])
assert_type(
    windowed.count().to_stream(lambda window, count: window.key, key=str), KStream[str, int]
)
assert_type(windowed.count().suppress(Suppressed.until_window_closes()), KTable[Windowed[str], int])
closed = windowed.emit_strategy(EmitStrategy.on_window_close())
assert_type(closed.count(), KTable[Windowed[str], int])

assert_type(
    by_customer.windowed_by(SlidingWindows("10s", grace="1m")).count(), KTable[Windowed[str], int]
)
sessions = by_customer.windowed_by(SessionWindows("5m"))
assert_type(sessions.count(), KTable[Windowed[str], int])
assert_type(sessions.aggregate(Revenue, add, both), KTable[Windowed[str], Revenue])

window = Windowed("ann", Window(0, 10))
assert_type(window.key, str)
assert_type(window.window.start, int)
