"""Count and sum of the orders of each location, in a store that can be queried."""

from __future__ import annotations

from benchmarks.apps.orders import Order, Totals, add
from headrace import Materialized, StreamsBuilder, Topology

STORE = "totals"


def topology(source: str) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(source, key=str, value=Order)
    orders.group_by_key().aggregate(Totals, add, materialized=Materialized(STORE))
    return builder.build()
