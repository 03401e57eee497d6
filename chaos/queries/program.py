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
ORDERS, RATES, PRICES = "orders", "rates", "prices"
INPUTS = (ORDERS, RATES, PRICES)
PARTITIONS = 3
USERS, GROUPS, OPEN, RATED = "by-user", "by-group", "open", "by-rate"
STORES = (USERS, GROUPS, OPEN, RATED)
"""The stores with one value for each key."""
WINDOWS, SESSIONS, VERSIONS, LATE = "by-window", "by-session", "last", "late"
HISTORIES = (WINDOWS, SESSIONS, VERSIONS, LATE)
"""The stores with several values for each key."""
GROUP_COUNT = 7
WINDOW_MS, GAP_MS = 2_000, 150
RETENTION_MS = 60_000
"""How long windows and sessions stay: a campaign is longer, so they expire while it reads."""
HISTORY_MS = 3_600_000
SETTINGS = {
    # The table of rates is quiet, so the join holds orders back.
    "max.task.idle.ms": "300",
    # Kafka compacts changelogs while instances read them.
    "topic.segment.ms": "2000",
    "topic.min.cleanable.dirty.ratio": "0.01",
}
"""The settings of the application and its instances."""
_COMPACTS_AT_ONCE = {"min.compaction.lag.ms": "0"}


def group_of(amount: int) -> str:
    """Return the group of an order."""
    return f"g{amount % GROUP_COUNT}"


def closes(amount: int) -> bool:
    """Return whether an order deletes the open sum of its user."""
    return amount % 4 == 0


def rate_of(user: str) -> int:
    """Return the rate of a user, which never changes."""
    return 1 + sum(user.encode()) % 5


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
    rates = builder.table(RATES, key=str, value=int)
    rated = orders.join(rates, lambda amount, rate: amount * rate, value=int)
    rated.group_by_key().reduce(lambda total, amount: total + amount, materialized=RATED)
    late = Materialized(LATE, history_retention=HISTORY_MS, logging=_COMPACTS_AT_ONCE)
    builder.table(PRICES, key=str, value=int, materialized=late)
    return builder.build()


app = KafkaStreams(topology(), application_id=APPLICATION)
