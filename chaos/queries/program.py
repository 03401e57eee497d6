"""The application whose stores are read: sums by user, and by group behind a repartition."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder, Topology

APPLICATION = "chaos-queries"
ORDERS = "orders"
PARTITIONS = 3
USERS, GROUPS = "by-user", "by-group"
STORES = (USERS, GROUPS)
GROUP_COUNT = 7


def group_of(amount: int) -> str:
    """Return the group of an order."""
    return f"g{amount % GROUP_COUNT}"


def topology() -> Topology:
    """Return the program. Both stores together have each order once."""
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, key=str, value=int)
    orders.group_by_key().reduce(lambda total, amount: total + amount, materialized=USERS)
    by_group = orders.group_by(lambda _, amount: group_of(amount), key=str, value=int)
    by_group.reduce(lambda total, amount: total + amount, materialized=GROUPS)
    return builder.build()


app = KafkaStreams(topology(), application_id=APPLICATION)
