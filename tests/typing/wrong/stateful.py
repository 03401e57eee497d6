"""Aggregators and joiners that forget a case are refused."""

from __future__ import annotations

from headrace import StreamsBuilder, TimeWindows

builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=float)
names = builder.table("names", key=str, value=str)
grouped = orders.group_by_key()


def add(key: str, order: float, total: float) -> None:
    """Forgets to return the aggregate."""


def shout(order: float, name: str) -> str:
    return name.upper()


grouped.aggregate(float, add)  # E: arg-type; pyright: reportArgumentType
grouped.reduce(lambda left, right: str(left))  # E: return-value; pyright: reportArgumentType
grouped.windowed_by("15s")  # E: call-overload; pyright: reportArgumentType
orders.join(names, shout)
orders.left_join(names, shout)  # E: arg-type; pyright: reportArgumentType
orders.join(names)  # E: call-overload; pyright: reportCallIssue
count: str = grouped.windowed_by(TimeWindows("15s")).count()  # E: assignment; pyright: reportAssignmentType
