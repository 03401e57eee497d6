"""Count and sum of the orders of each location."""

from __future__ import annotations

from benchmarks.apps.orders import Order, Topics, Totals, add
from headrace import StreamsBuilder, Topology


def topology(topics: Topics) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(topics.source, key=str, value=Order)
    orders.group_by_key().aggregate(Totals, add).to_stream().to(topics.output)
    return builder.build()
