"""A count and a sum for each group that events name: two stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.workloads.generating import PARTITIONS, SETTINGS, chance, event
from chaos.workloads.running_aggregate import add, nothing
from chaos.workloads.stamping import stamped
from headrace import Materialized, StreamsBuilder, Topology


def _topology() -> Topology:
    builder = StreamsBuilder()
    totals = (
        builder.stream("rekeyed-events", key=str, value=dict[str, Any])
        .group_by(lambda _, event: str(event["group"]), key=str)
        .aggregate(
            nothing,
            add,
            materialized=Materialized("rekeyed-store", key=str, value=dict[str, Any]),
        )
    )
    stamped(totals.to_stream(), "totals").to("rekeyed-totals", key=str, value=dict[str, Any])
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        group = f"group-{chance(seed, -1 - number).randrange(20)}"
        yield event("rekeyed-events", seed, number, keys=1_000, group=group)


WORKLOAD = Workload(
    name="rekeyed_aggregate",
    topics={"rekeyed-events": PARTITIONS},
    outputs={"rekeyed-totals": 2},
    stores={"rekeyed-store": "key_value"},
    settings=SETTINGS,
    topology=_topology,
    records=_records,
    expected=oracle.rekeyed_aggregate,
    observed=oracle.rekeyed_aggregate_seen,
    traced=lambda outputs: oracle.ids_in(outputs, "rekeyed-totals"),
    shown=("rekeyed-store", "rekeyed-totals"),
)
