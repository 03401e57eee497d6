"""Joins and windows that forget a case are refused."""

from __future__ import annotations

from headrace import StreamsBuilder, TimeWindows

builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=float)
names = builder.table("names", key=str, value=str)
other_keys = builder.table("numbers", key=int, value=str)
grouped = orders.group_by_key()


def shout(order: float, name: str) -> str:
    return name.upper()


orders.join(names, shout)
orders.left_join(names, shout)  # E: arg-type; pyright: reportArgumentType,reportCallIssue
orders.join(other_keys, shout)  # E: arg-type; pyright: reportArgumentType,reportCallIssue
orders.join(names)  # E: call-overload; pyright: reportCallIssue
orders.join(names, shout, nam="shout")  # E: call-overload; pyright: reportCallIssue
orders.join(names, shout, name=3)  # E: call-overload; pyright: reportArgumentType,reportCallIssue
orders.join(names, shout, value=int)  # E: arg-type
orders.join(names, shout, store_name="names")  # E: call-overload; pyright: reportCallIssue
names.join(other_keys, lambda name, number: name, foreign_key=lambda name: name)  # E: arg-type,return-value; pyright: reportArgumentType,reportCallIssue
names.join(names, lambda name, other: name, partitioner=None)  # E: call-overload; pyright: reportCallIssue
grouped.windowed_by("15s")  # E: call-overload; pyright: reportArgumentType,reportCallIssue
count: str = grouped.windowed_by(TimeWindows("15s")).count()  # E: assignment; pyright: reportAssignmentType
