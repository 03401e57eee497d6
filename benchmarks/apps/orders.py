"""The types that the programs read and keep."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class Topics(NamedTuple):
    """The topics that a program reads and writes."""

    source: str
    table: str
    output: str


class Order(Struct):
    order_id: int
    location_id: str
    customer_id: str
    final_amount: float
    order_type: str


class Totals(Struct):
    orders: int = 0
    amount: float = 0.0


def add(_key: str, order: Order, totals: Totals) -> Totals:
    return Totals(totals.orders + 1, totals.amount + order.final_amount)
