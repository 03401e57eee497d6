"""Joiners see both sides; the side that may be missing is ``| None``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from headrace import JoinWindows, KStream, KTable, StreamsBuilder


@dataclass
class Order:
    customer: str
    amount: float


@dataclass
class Customer:
    name: str
    region: int


@dataclass
class Bill:
    order: Order
    customer: Customer | None


def bill(order: Order, customer: Customer) -> Bill:
    return Bill(order, customer)


def bill_perhaps(order: Order, customer: Customer | None) -> Bill:
    return Bill(order, customer)


def bill_of_key(key: str, order: Order, customer: Customer) -> Bill:
    return Bill(order, customer)


def paid(order: Order, payment: float) -> bool:
    return order.amount <= payment


def paid_perhaps(order: Order, payment: float | None) -> bool:
    return payment is not None and order.amount <= payment


def both_there(order: Order | None, payment: float | None) -> bool:
    return order is not None and payment is not None


def name_of(customer: Customer, region: str) -> str:
    return f"{customer.name} in {region}"


builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=Order)
payments = builder.stream("payments", key=str, value=float)
customers = builder.table("customers", key=str, value=Customer)
counts = payments.group_by_key().count()
region_names = builder.table("regions", key=int, value=str)
regions = builder.global_table("global-regions", key=int, value=str)

assert_type(orders.join(customers, bill), KStream[str, Bill])
assert_type(orders.join(customers, Bill), KStream[str, Bill])
assert_type(orders.join(customers, bill_of_key), KStream[str, Bill])
assert_type(orders.left_join(customers, bill_perhaps), KStream[str, Bill])

windows = JoinWindows("5m", grace="1m")
assert_type(orders.join(payments, paid, windows), KStream[str, bool])
assert_type(orders.left_join(payments, paid_perhaps, windows), KStream[str, bool])
assert_type(orders.outer_join(payments, both_there, windows), KStream[str, bool])

assert_type(
    orders.join(regions, lambda order, region: region, on=lambda _, order: 1, value=str),
    KStream[str, str],
)

assert_type(
    counts.join(customers, lambda count, customer: customer.name * count, value=str),
    KTable[str, str],
)
assert_type(
    counts.left_join(customers, lambda count, customer: customer is None, value=bool),
    KTable[str, bool],
)
assert_type(
    customers.join(region_names, name_of, foreign_key=lambda customer: customer.region),
    KTable[str, str],
)

# The keywords of an overload have the types of its functions.
assert_type(
    orders.join(
        payments,
        lambda key, order, payment: f"{key} {order.amount - payment}",
        windows,
        value=str,
        store_name="paid",
        store_type="in_memory",
        logging={"retention.ms": "1000"},
        name="paid",
    ),
    KStream[str, str],
)
assert_type(orders.join(customers, bill, value=Bill, grace=None, name="bills"), KStream[str, Bill])
assert_type(
    customers.left_join(
        region_names,
        lambda customer, region: customer.name if region is None else region,
        foreign_key=lambda customer: customer.region,
        value=str,
        partitioner=lambda topic, key, value, partitions: 0,
        other_partitioner=lambda topic, key, value, partitions: 0,
        materialized="places",
        name="places",
    ),
    KTable[str, str],
)
