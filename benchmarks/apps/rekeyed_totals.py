"""Count and sum of the orders of each customer: the orders change partition on the way."""

from __future__ import annotations

from benchmarks.apps.orders import Order, Topics, Totals, add
from headrace import StreamsBuilder, Topology


def customer_of(_key: str, order: Order) -> str:
    return order.customer_id


def topology(topics: Topics) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(topics.source, key=str, value=Order)
    orders.group_by(customer_of).aggregate(Totals, add).to_stream().to(topics.output)
    return builder.build()
