"""Totals of tumbling windows, each shown once, when its window is closed.

Beside them each event is echoed, and each change of a total shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.workloads.generating import PARTITIONS, SETTINGS, event
from chaos.workloads.running_aggregate import add, nothing
from chaos.workloads.stamping import stamped_together
from headrace import Materialized, Serdes, StreamsBuilder, Suppressed, TimeWindows, Topology


def _topology() -> Topology:
    builder = StreamsBuilder()
    events = builder.stream("windowed-events", key=str, value=dict[str, Any])
    totals = (
        events.group_by_key()
        .windowed_by(TimeWindows(oracle.WINDOW_MS, grace=oracle.GRACE_MS))
        .aggregate(
            nothing,
            add,
            # Long, so that the changelog is not shortened either.
            materialized=Materialized(
                "windowed-store", key=str, value=dict[str, Any], retention="3650d"
            ),
        )
    )
    closed = totals.suppress(Suppressed.until_window_closes())
    echo, changes, results = stamped_together(
        "windowed", events, totals.to_stream(), closed.to_stream()
    )
    windowed = Serdes.time_windowed(str, oracle.WINDOW_MS)
    echo.to("windowed-echo", key=str, value=dict[str, Any])
    changes.to("windowed-changes", key=windowed, value=dict[str, Any])
    results.to("windowed-totals", key=windowed, value=dict[str, Any])
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        yield event("windowed-events", seed, number, keys=12)


WORKLOAD = Workload(
    name="windowed_suppress",
    topics={"windowed-events": PARTITIONS},
    outputs={
        "windowed-echo": PARTITIONS,
        "windowed-changes": PARTITIONS,
        "windowed-totals": PARTITIONS,
    },
    stores={"windowed-store": "window"},
    settings=SETTINGS,
    topology=_topology,
    records=_records,
    expected=oracle.windowed_suppress,
    observed=oracle.windowed_suppress_seen,
    traced=lambda outputs: oracle.ids_in(outputs, "windowed-echo"),
    shown=("windowed-store", "windowed-changes"),
)
