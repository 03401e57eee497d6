"""Groups, joins and suppression of tables keep their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from headrace import KGroupedTable, KTable, StreamsBuilder, Suppressed, TimeWindows, Windowed


@dataclass
class Customer:
    name: str
    region: int


@dataclass
class Total:
    names: list[str]


def no_names() -> Total:
    return Total([])


def with_name(_region: int, name: str, total: Total) -> Total:
    return Total([*total.names, name])


def without_name(_region: int, name: str, total: Total) -> Total:
    return Total([other for other in total.names if other != name])


def longer(one: str, other: str) -> str:
    return max(one, other, key=len)


builder = StreamsBuilder()
customers = builder.table("customers", key=str, value=Customer)
limits = builder.table("limits", key=str, value=float)
regions = builder.table("regions", key=int, value=str)

by_region = customers.group_by(lambda _, customer: (customer.region, customer.name))
assert_type(by_region, KGroupedTable[int, str])
assert_type(by_region.count(), KTable[int, int])
assert_type(by_region.reduce(longer, longer), KTable[int, str])
assert_type(
    by_region.aggregate(no_names, with_name, without_name),
    KTable[int, Total],
)
assert_type(
    customers.group_by(lambda key, customer: (key, customer) if key else None),
    KGroupedTable[str, Customer],
)

assert_type(customers.join(limits, lambda one, limit: limit > one.region), KTable[str, bool])
assert_type(
    customers.join(limits, lambda key, one, limit: f"{key} {one.name} {limit:.2f}"),
    KTable[str, str],
)
assert_type(
    customers.left_join(limits, lambda key, one, limit: (key, one.name, limit is None)),
    KTable[str, tuple[str, str, bool]],
)
assert_type(
    customers.outer_join(limits, lambda one, limit: one is None or limit is None),
    KTable[str, bool],
)
assert_type(
    customers.outer_join(limits, lambda key, one, limit: key if one is None else one.name),
    KTable[str, str],
)

assert_type(
    customers.join(
        regions, lambda one, region: one.name + region, foreign_key=lambda one: one.region
    ),
    KTable[str, str],
)
assert_type(
    customers.left_join(
        regions,
        lambda one, region: one.name if region is None else region,
        foreign_key=lambda key, one: one.region if key else None,
    ),
    KTable[str, str],
)
assert_type(
    customers.join(
        regions,
        lambda key, one, region: key + one.name + region,
        foreign_key=lambda one: one.region,
        partitioner=lambda topic, key, value, partitions: 0,
        other_partitioner=lambda topic, key, value, partitions: [0],
    ),
    KTable[str, str],
)

counts = builder.stream("in", key=str, value=str).group_by_key().windowed_by(TimeWindows(5)).count()
assert_type(counts.suppress(Suppressed.until_window_closes()), KTable[Windowed[str], int])
