"""Totals of tumbling windows, each shown once, when its window is closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.workloads.generating import PARTITIONS, SETTINGS, event
from chaos.workloads.running_aggregate import add, nothing
from chaos.workloads.stamping import stamped
from headrace import Materialized, StreamsBuilder, Suppressed, TimeWindows, Topology


def _topology() -> Topology:
    builder = StreamsBuilder()
    totals = (
        builder.stream("windowed-events", key=str, value=dict[str, Any])
        .group_by_key()
        .windowed_by(TimeWindows(oracle.WINDOW_MS, grace=oracle.GRACE_MS))
        .aggregate(
            nothing,
            add,
            # Long, so that the changelog is not shortened either.
            materialized=Materialized(
                "windowed-store", key=str, value=dict[str, Any], retention="3650d"
            ),
        )
        .suppress(Suppressed.until_window_closes())
    )
    stamped(totals.to_stream(), "closed").to("windowed-totals", value=dict[str, Any])
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        yield event("windowed-events", seed, number, keys=12)


WORKLOAD = Workload(
    name="windowed_suppress",
    topics={"windowed-events": PARTITIONS},
    outputs={"windowed-totals": PARTITIONS},
    stores={"windowed-store": "window"},
    settings=SETTINGS,
    topology=_topology,
    records=_records,
    expected=oracle.windowed_suppress,
    observed=oracle.windowed_suppress_seen,
)
