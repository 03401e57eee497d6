"""Types flow through groupings and aggregations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from headrace import GlobalKTable, KStream, KTable, Materialized, StreamsBuilder


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


def larger(left: Order, right: Order) -> Order:
    return left if left.amount > right.amount else right


builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=Order)
by_customer = orders.group_by(lambda _, order: order.customer, key=str)
by_amount = orders.group_by(lambda _, order: int(order.amount), key=int)

assert_type(by_customer.count(), KTable[str, int])
assert_type(by_amount.count(materialized="amounts"), KTable[int, int])
assert_type(by_customer.count(materialized=Materialized("counts")), KTable[str, int])
assert_type(by_customer.reduce(larger), KTable[str, Order])
assert_type(by_customer.aggregate(Revenue, add, value=Revenue), KTable[str, Revenue])
assert_type(by_customer.aggregate(Revenue, add), KTable[str, Revenue])
assert_type(by_customer.aggregate(Revenue, add).to_stream(), KStream[str, Revenue])
assert_type(
    by_customer.aggregate(Revenue, add).map_values(lambda revenue: revenue.total, value=float),
    KTable[str, float],
)
assert_type(builder.global_table("regions", key=int, value=str), GlobalKTable[int, str])
