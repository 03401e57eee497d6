"""The general orders, with tax: JSON to JSON, without state."""

from __future__ import annotations

from msgspec import Struct

from benchmarks.apps.orders import Order, Topics
from headrace import StreamsBuilder, Topology

TAX = 1.25


class Receipt(Struct):
    order_id: int
    location_id: str
    with_tax: float


def is_general(_key: str, order: Order) -> bool:
    return order.order_type == "GENERAL"


def receipt_from_order(order: Order) -> Receipt:
    return Receipt(order.order_id, order.location_id, order.final_amount * TAX)


def topology(topics: Topics) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(topics.source, key=str, value=Order)
    orders.filter(is_general).map_values(receipt_from_order).to(topics.output)
    return builder.build()
