"""Aggregators that return something else, or nothing, are refused."""

from __future__ import annotations

from headrace import StreamsBuilder

builder = StreamsBuilder()
grouped = builder.stream("orders", key=str, value=float).group_by_key()


def add(key: str, order: float, total: float) -> None:
    """Forgets to return the aggregate."""


grouped.aggregate(float, add)  # E: misc; pyright: reportArgumentType
grouped.reduce(lambda left, right: str(left))  # E: arg-type,return-value; pyright: reportArgumentType
grouped.count(materialised="counts")  # E: call-arg; pyright: reportCallIssue
total: str = grouped.count()  # E: assignment; pyright: reportAssignmentType
