"""A count and a sum for each key, beside an echo of each event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.workloads.generating import PARTITIONS, SETTINGS, event
from chaos.workloads.stamping import stamped
from headrace import Materialized, StreamsBuilder, Topology


def add(_key: str, event: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
    """Return a total with one more event, and which one it was."""
    return {
        "count": total["count"] + 1,
        "sum": total["sum"] + event["amount"],
        "id": event["id"],
    }


def nothing() -> dict[str, Any]:
    """Return the total of no events."""
    return {"count": 0, "sum": 0}


def _topology() -> Topology:
    builder = StreamsBuilder()
    events = stamped(builder.stream("running-events", key=str, value=dict[str, Any]), "events")
    events.to("running-echo", key=str, value=dict[str, Any])
    totals = events.group_by_key(key=str, value=dict[str, Any]).aggregate(
        nothing,
        add,
        materialized=Materialized("running-store", key=str, value=dict[str, Any]),
    )
    totals.to_stream().to("running-totals")
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        yield event("running-events", seed, number, keys=30)


WORKLOAD = Workload(
    name="running_aggregate",
    topics={"running-events": PARTITIONS},
    outputs={"running-echo": PARTITIONS, "running-totals": PARTITIONS},
    stores={"running-store": "key_value"},
    settings=SETTINGS,
    topology=_topology,
    records=_records,
    expected=oracle.running_aggregate,
    observed=oracle.running_aggregate_seen,
    traced=lambda outputs: oracle.ids_in(outputs, "running-echo"),
    shown=("running-store", "running-totals"),
    twins=("running-echo", "running-totals"),
)
