"""Count and sum of the orders of each location and minute."""

from __future__ import annotations

from benchmarks.apps.orders import Order, Topics, Totals, add
from headrace import StreamsBuilder, TimeWindows, Topology


def topology(topics: Topics) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(topics.source, key=str, value=Order)
    minutes = orders.group_by_key().windowed_by(TimeWindows("1m", grace="10s"))
    minutes.aggregate(Totals, add).to_stream().to(topics.output)
    return builder.build()
