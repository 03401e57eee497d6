"""The application whose stores are read: each kind of store, and one behind a repartition."""

from __future__ import annotations

from headrace import (
    KafkaStreams,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)

APPLICATION = "chaos-queries"
ORDERS = "orders"
PARTITIONS = 3
USERS, GROUPS, OPEN = "by-user", "by-group", "open"
STORES = (USERS, GROUPS, OPEN)
"""The stores with one value for each key."""
WINDOWS, SESSIONS, VERSIONS = "by-window", "by-session", "last"
HISTORIES = (WINDOWS, SESSIONS, VERSIONS)
"""The stores with several values for each key."""
GROUP_COUNT = 7
WINDOW_MS, GAP_MS = 2_000, 150
RETENTION_MS = 60_000
"""How long windows and sessions stay: a campaign is longer, so they expire while it reads."""
HISTORY_MS = 3_600_000


def group_of(amount: int) -> str:
    """Return the group of an order."""
    return f"g{amount % GROUP_COUNT}"


def closes(amount: int) -> bool:
    """Return whether an order deletes the open sum of its user."""
    return amount % 4 == 0


def nothing_open() -> int | None:
    """Return the open sum before the first order."""
    return 0


def add_open(_user: str, amount: int, total: int | None) -> int | None:
    """Return the open sum after an order."""
    return None if closes(amount) else (total or 0) + amount


def topology() -> Topology:
    """Return the program."""
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, key=str, value=int)
    by_user = orders.group_by_key()
    by_user.reduce(lambda total, amount: total + amount, materialized=USERS)
    by_group = orders.group_by(lambda _, amount: group_of(amount), key=str, value=int)
    by_group.reduce(lambda total, amount: total + amount, materialized=GROUPS)
    by_user.aggregate(nothing_open, add_open, materialized=Materialized(OPEN))
    by_user.windowed_by(TimeWindows(WINDOW_MS)).reduce(
        lambda total, amount: total + amount,
        materialized=Materialized(WINDOWS, retention=RETENTION_MS),
    )
    by_user.windowed_by(SessionWindows(GAP_MS)).reduce(
        lambda total, amount: total + amount,
        materialized=Materialized(SESSIONS, retention=RETENTION_MS),
    )
    orders.to_table(materialized=Materialized(VERSIONS, history_retention=HISTORY_MS))
    return builder.build()


app = KafkaStreams(topology(), application_id=APPLICATION)
