"""The orders, each with the city of its location."""

from __future__ import annotations

from msgspec import Struct

from benchmarks.apps.orders import Order, Topics
from headrace import StreamsBuilder, Topology


class Location(Struct):
    name: str
    city: str


class Delivery(Struct):
    order_id: int
    final_amount: float
    city: str


def delivery_from(order: Order, location: Location) -> Delivery:
    return Delivery(order.order_id, order.final_amount, location.city)


def topology(topics: Topics) -> Topology:
    builder = StreamsBuilder()
    locations = builder.table(topics.table, key=str, value=Location)
    orders = builder.stream(topics.source, key=str, value=Order)
    orders.join(locations, delivery_from).to(topics.output)
    return builder.build()
