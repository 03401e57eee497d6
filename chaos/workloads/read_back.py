"""Events are written to a topic, which the same application reads to count and sum them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.workloads.generating import PARTITIONS, SETTINGS, event
from chaos.workloads.running_aggregate import add, nothing
from chaos.workloads.stamping import stamped
from headrace import Materialized, StreamsBuilder, Topology


def _topology() -> Topology:
    builder = StreamsBuilder()
    events = stamped(builder.stream("looped-events", key=str, value=dict[str, Any]), "events")
    events.to("looped-back", key=str, value=dict[str, Any])
    totals = (
        builder.stream("looped-back", key=str, value=dict[str, Any])
        .group_by_key()
        .aggregate(
            nothing,
            add,
            materialized=Materialized("looped-store", key=str, value=dict[str, Any]),
        )
    )
    stamped(totals.to_stream(), "totals").to("looped-totals", key=str, value=dict[str, Any])
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        yield event("looped-events", seed, number, keys=30)


WORKLOAD = Workload(
    name="read_back",
    topics={"looped-events": PARTITIONS},
    outputs={"looped-back": PARTITIONS, "looped-totals": PARTITIONS},
    stores={"looped-store": "key_value"},
    settings=SETTINGS,
    topology=_topology,
    records=_records,
    expected=oracle.read_back,
    observed=oracle.read_back_seen,
    traced=lambda outputs: oracle.ids_in(outputs, "looped-back"),
    shown=("looped-store", "looped-totals"),
)
