"""Types flow through aggregations, windows and joins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from headrace import (
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
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


@dataclass
class Customer:
    name: str


@dataclass
class Bill:
    order: Order
    customer: Customer | None


def add(customer: str, order: Order, revenue: Revenue) -> Revenue:
    return Revenue(revenue.orders + 1, revenue.total + order.amount)


def larger(left: Order, right: Order) -> Order:
    return left if left.amount > right.amount else right


builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=Order)
payments = builder.stream("payments", key=str, value=float)
customers = builder.table("customers", key=str, value=Customer)
regions = builder.global_table("regions", key=int, value=str)
by_customer = orders.group_by(lambda _, order: order.customer, key=str)

assert_type(by_customer.count(), KTable[str, int])
assert_type(by_customer.count(materialized=Materialized("counts")), KTable[str, int])
assert_type(by_customer.reduce(larger), KTable[str, Order])
assert_type(by_customer.aggregate(Revenue, add), KTable[str, Revenue])

windowed = by_customer.windowed_by(TimeWindows("15s", grace="5s"))
assert_type(windowed.count(), KTable[Windowed[str], int])
assert_type(windowed.reduce(larger), KTable[Windowed[str], Order])
assert_type(windowed.aggregate(Revenue, add), KTable[Windowed[str], Revenue])
assert_type(windowed.count().to_stream(), KStream[Windowed[str], int])
assert_type(
    windowed.count().to_stream(lambda window, count: window.key, key=str), KStream[str, int]
)
sessions = by_customer.windowed_by(SessionWindows("5m"))
assert_type(sessions.count(), KTable[Windowed[str], int])


def bill(order: Order, customer: Customer) -> Bill:
    return Bill(order, customer)


def bill_perhaps(order: Order, customer: Customer | None) -> Bill:
    return Bill(order, customer)


def paid(order: Order, payment: float) -> bool:
    return order.amount <= payment


def paid_perhaps(order: Order | None, payment: float | None) -> bool:
    return order is not None and payment is not None


windows = JoinWindows("5m", grace="1m")
assert_type(orders.join(customers, bill), KStream[str, Bill])
assert_type(orders.join(customers, Bill), KStream[str, Bill])
assert_type(orders.left_join(customers, bill_perhaps), KStream[str, Bill])
assert_type(orders.join(payments, paid, windows), KStream[str, bool])
assert_type(orders.outer_join(payments, paid_perhaps, windows), KStream[str, bool])
assert_type(
    orders.join(regions, lambda order, region: region, on=lambda _, order: 1, value=str),
    KStream[str, str],
)
assert_type(
    by_customer.count().join(customers, lambda count, customer: customer.name, value=str),
    KTable[str, str],
)
