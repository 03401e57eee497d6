"""The figures of queries: each against its bar, as a table and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from benchmarks.report import Machine

BUSY = 1.0
"""From this load on, for each core, other programs have slowed a measurement down."""


class Bar(NamedTuple):
    """The bar for a figure."""

    title: str
    unit: str
    limit: float | None
    """None: the figure has no bar."""
    is_least: bool = False
    """Whether more is better."""

    def is_met(self, value: float) -> bool | None:
        """Return whether a value meets the bar; None: there is none."""
        if self.limit is None:
            return None
        return value >= self.limit if self.is_least else value <= self.limit


BARS: Mapping[str, Bar] = {
    "point_reads": Bar("point reads over HTTP", "/s", 20_000, is_least=True),
    "point_reads_p99": Bar("  p99", "ms", 10),
    "point_reads_cpu": Bar("  in a second of its CPU time", "/s", None),
    "point_reads_updates": Bar("  updates that arrived", "/s", None),
    "point_reads_lag": Bar("  snapshots behind, at the end", "", None),
    "freshness_p50": Bar("committed to visible, p50", "ms", 60),
    "freshness_p99": Bar("  p99", "ms", 150),
    "freshness_loaded_p50": Bar("  with the point reads, p50", "ms", None),
    "freshness_loaded_p99": Bar("  with the point reads, p99", "ms", None),
    "restore_kafka": Bar("restore from Kafka", "records/s", 300_000, is_least=True),
    "restore_kafka_cpu": Bar("  CPU time of a record", "µs", None),
    "restore_peer": Bar("restore from a peer", "entries/s", 1_000_000, is_least=True),
    "restore_peer_cpu": Bar("  CPU time of an entry", "µs", None),
    "restore_peer_start": Bar("  from the start of the instance", "s", None),
    "kill_gap": Bar("gap in key reads after kill -9", "s", 1),
    "batch_pays": Bar("what a batch of 500 changes pays", "ms", 5),
    "batch_steps": Bar("  of it without the changes", "ms", None),
    "batch_steps_p99": Bar("  of it without the changes, p99", "ms", None),
    "sql_by_key": Bar("SQL by key over HTTP, p50", "ms", 1),
    "sql_by_key_cpu": Bar("  CPU time of the instance", "ms", None),
    "sql_aggregate": Bar("SQL aggregate of all rows", "s", 2),
    "memory": Bar("memory of an instance", "MB", 400),
    "memory_peak": Bar("  at most, while it was read", "MB", None),
}
"""The figures in the order of the table."""


class Figure(Struct):
    """One result."""

    name: str
    value: float
    load_average: float
    """Of the minute before it was taken, over all programs."""
    system: str = "headrace"


class QueryReport(Struct):
    """Everything that one run found."""

    began: str
    keys: int
    machine: Machine
    client: str
    """What asked for the point reads."""
    figures: list[Figure] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Why a figure is not there, by its name."""

    def add(self, system: str = "headrace", /, **values: float) -> None:
        """Add figures with the load of now."""
        load = round(os.getloadavg()[0], 2)
        self.figures += [Figure(name, value, load, system) for name, value in values.items()]

    def find(self, name: str, system: str) -> Figure | None:
        """Return a figure of a system."""
        every = (each for each in self.figures if (each.name, each.system) == (name, system))
        return next(every, None)


def shown(value: float, unit: str) -> str:
    """Return a figure with its unit, with as many digits as it deserves."""
    digits = 0 if abs(value) >= 100 or unit in ("/s", "records/s", "entries/s", "MB", "") else 2
    space = "" if unit.startswith("/") else " "
    return f"{value:,.{digits}f}{space}{unit}".strip()


def verdict_of(bar: Bar, figure: Figure | None, reason: str | None) -> str:
    """Return whether a bar is met, in a word."""
    if figure is None:
        return "not measured" if reason is None else f"not measured: {reason}"
    is_met = bar.is_met(figure.value)
    return "" if is_met is None else "met" if is_met else "MISSED"


def query_table(report: QueryReport) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'':32} {'Headrace':>18} {'bar':>22} {'Kafka Streams':>16} {'load':>5}"
    for name, bar in BARS.items():
        ours, rival = (report.find(name, each) for each in ("headrace", "kafka-streams"))
        reason = report.missing.get(name)
        if ours is None and rival is None and reason is None:
            continue
        limit = ""
        if bar.limit is not None:
            limit = f"{'at least' if bar.is_least else 'at most'} {shown(bar.limit, bar.unit)}"
        yield (
            f"{bar.title:32} {'' if ours is None else shown(ours.value, bar.unit):>18} "
            f"{limit:>22} {'' if rival is None else shown(rival.value, bar.unit):>16} "
            f"{'' if ours is None else f'{ours.load_average:.1f}':>5}  "
            f"{verdict_of(bar, ours, reason)}"
        ).rstrip()


def busy_note(report: QueryReport) -> str | None:
    """Return a warning if other programs were at work; None: the machine was quiet."""
    if report.machine.load_average < BUSY * report.machine.cores:
        return None
    return (
        f"The load was {report.machine.load_average:g} on {report.machine.cores} cores before the "
        "run began: other programs were at work, so the figures are too bad."
    )


def longest_gap(answers: Iterable[tuple[float, object]], killed: float, until: float) -> float:
    """Return the longest time without an answer, in seconds, of one stream of answers or several.

    Each stream counts alone. A gap counts if it ends after the kill; one that does not end counts
    up to the end of the measurement.

    Args:
        answers: When each answer came, and of which stream.
        killed: When the instance was killed.
        until: When the measurement ended.
    """
    last: dict[object, float] = {}
    longest = 0.0
    for at, stream in sorted(answers, key=lambda each: each[0]):
        if at > killed and stream in last:
            longest = max(longest, at - max(last[stream], killed))
        last[stream] = at
    return max([longest, *(until - max(at, killed) for at in last.values())])


def waits(commits: Mapping[int, float], sightings: Sequence[tuple[int, float]]) -> list[float]:
    """Return how long each transaction took to be visible, in milliseconds.

    A transaction is visible when a reader sees its number or a later one.

    Args:
        commits: When each transaction was committed, by its number.
        sightings: The numbers that a reader saw, and when, in the order of time.
    """
    found = []
    due = iter(sorted(commits.items()))
    number, committed = next(due, (None, 0.0))
    for seen, at in sightings:
        while number is not None and number <= seen:
            found.append(max(0.0, at - committed) * 1_000)
            number, committed = next(due, (None, 0.0))
    return found
