"""Run files: how the driver's processes share control and status.

Spark runs the planner of the source and the commit of the sink in Python processes of their own, on
the machine of the driver. Each write replaces its file atomically.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace.engine.record_failures import FirstFailure
from headrace.engine.samples import SourceSamples
from headrace.metrics import Histogram
from headrace.runtime.exchange.packing import TaskReport

T = TypeVar("T")

LOST = "lost"
"""The reason under which batches count offsets that were deleted before they were read."""


class Control(msgspec.Struct, frozen=True):
    """The application's requests to the planner."""

    stopping: bool = False
    """Whether no further batch may begin."""
    paused: bool = False
    clock: int | None = None
    """The time of day, if it is not that of the system clock."""


class Totals(msgspec.Struct):
    """The counts of all batches of a run."""

    batches: int = 0
    processed: dict[str, int] = {}
    """Records, by task."""
    dropped: dict[str, dict[str, dict[str, int]]] = {}
    """Records, by task, node and reason."""
    written: dict[str, int] = {}
    """Records, by topic."""
    refused: dict[str, int] = {}
    """Records that the broker refused, by topic."""
    failures: list[FirstFailure] = []
    """The first failure that a handler skipped, for each node and reason."""
    sources: dict[str, dict[str, int]] = {}
    """Records, by subtopology and source node."""
    bytes_consumed: dict[str, dict[int, int]] = {}
    """Bytes of keys, values and headers, by topic and partition."""
    bytes_produced: dict[str, int] = {}
    """Bytes of keys, values and headers, by topic."""
    samples: dict[str, dict[str, SourceSamples]] = {}
    """The records that were measured, by subtopology and source node."""
    events: dict[str, dict[str, int]] = {}
    """How often something happened, by node and event."""
    buffers: dict[str, dict[str, tuple[int, int]]] = {}
    """How many changes each ``suppress`` holds back, and their bytes, by node and task."""
    entries: dict[str, dict[str, int]] = {}
    """How many entries stores have, by store and task."""
    changes: dict[str, int] = {}
    """Changes of stores that can be queried, by changelog."""
    latencies: dict[str, Histogram] = {}
    """The seconds from the timestamps of records until they were written, by topic."""
    transactions: dict[str, int] = {}
    """Transactions, by their end."""
    commit_seconds: Histogram = msgspec.field(default_factory=Histogram)
    """How long the commits of the batches took, in seconds."""

    @property
    def lost(self) -> int:
        """Return how many offsets were deleted before they were read."""
        return sum(
            counts.get(LOST, 0) for topics in self.dropped.values() for counts in topics.values()
        )

    def add(self, reports: Iterable[TaskReport]) -> None:
        """Add the reports of tasks."""
        for report in reports:
            _add(self.processed, {report.task: report.processed})
            if report.sources:
                subtopology = report.task.rpartition("_")[0]
                _add(self.sources.setdefault(subtopology, {}), report.sources)
            self._add_figures(report)
            for node, counts in report.dropped.items():
                _add(self.dropped.setdefault(report.task, {}).setdefault(node, {}), counts)
            self.add_failures(report.failures)

    def _add_figures(self, report: TaskReport) -> None:
        for topic, partitions in report.bytes_consumed.items():
            read = self.bytes_consumed.setdefault(topic, {})
            for partition, count in partitions.items():
                read[partition] = read.get(partition, 0) + count
        _add(self.bytes_produced, report.bytes_produced)
        _add(self.changes, {topic: store.changes for topic, store in report.stores.items()})
        if report.samples:
            nodes = self.samples.setdefault(report.task.rpartition("_")[0], {})
            for node, samples in report.samples.items():
                nodes.setdefault(node, SourceSamples()).merge(samples)
        for node, events in report.events.items():
            _add(self.events.setdefault(node, {}), events)
        for node, buffer in report.buffers.items():
            self.buffers.setdefault(node, {})[report.task] = buffer
        for store, count in report.entries.items():
            self.entries.setdefault(store, {})[report.task] = count

    def add_transactions(
        self, transactions: Mapping[str, int], latencies: Mapping[str, Histogram]
    ) -> None:
        """Add the transactions of a Spark partition, and how long its records took."""
        _add(self.transactions, transactions)
        for topic, histogram in latencies.items():
            self.latencies.setdefault(topic, Histogram()).merge(histogram)

    def add_failures(self, failures: Iterable[FirstFailure]) -> None:
        """Add the failures of nodes and reasons that have none yet."""
        for failure in failures:
            known = ((each.node, each.reason) for each in self.failures)
            if (failure.node, failure.reason) not in known:
                self.failures.append(failure)

    def add_written(self, written: Mapping[str, int], refused: Mapping[str, int]) -> None:
        """Add written and refused records."""
        _add(self.written, written)
        _add(self.refused, refused)


def _add(totals: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        totals[name] = totals.get(name, 0) + count


class BatchResult(msgspec.Struct, frozen=True):
    """The sink's result of the last batch, and the totals of the run."""

    batch: int = -1
    reports: list[TaskReport] = []
    totals: Totals = msgspec.field(default_factory=Totals)
    digest: str = ""
    """Identifies the boundaries of the batch; empty if no task has run."""
    ends: dict[str, dict[int, int]] = {}
    """By changelog and partition: the offset behind the last record of the batch."""


class PlannerStatus(msgspec.Struct, frozen=True):
    """The planner's status."""

    is_drained: bool = False
    """Whether the planner was asked to stop, and no batch runs any more."""
    offsets: dict[str, list[int]] = {}
    """How far batches that ended have read."""
    ends: dict[str, list[int]] = {}
    """The end offsets that the planner last read."""
    limit: int = 0
    """How many records a batch may have now."""
    seconds: float = 0.0
    """How long the last batch took."""


class Restarts(msgspec.Struct, frozen=True):
    """The number of times that the query of a run was started again after an error."""

    counts: dict[str, int] = {}
    """By the class of the error."""


class RunFiles:
    """Reads and writes the files of one run."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._kept: dict[type, msgspec.Struct] = {}

    def write(self, content: msgspec.Struct) -> None:
        """Replace the file of this kind. Any thread may call this."""
        path = self._path(type(content))
        beside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        beside.write_bytes(msgspec.json.encode(content))
        beside.replace(path)

    def read(self, kind: type[T]) -> T:
        """Return the content of a file; defaults if there is none."""
        kept = self._kept.get(kind)
        if isinstance(kept, kind):
            return kept
        try:
            data = self._path(kind).read_bytes()
        except FileNotFoundError:
            return kind()
        return msgspec.json.decode(data, type=kind)

    def written_at(self, kind: type) -> float:
        """Return the time of day of the last write, in seconds; 0 if there is none."""
        try:
            return self._path(kind).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def stamp(self, kind: type) -> tuple[int, int]:
        """Return a value that each write changes; zeros if there is no file."""
        try:
            status = self._path(kind).stat()
        except FileNotFoundError:
            return 0, 0
        # Two writes may have the same time, but then they are two files.
        return status.st_mtime_ns, status.st_ino

    def keep(self) -> None:
        """Keep the contents in memory, because the files are about to be deleted."""
        self._kept = {kind: self.read(kind) for kind in (Control, BatchResult, PlannerStatus)}

    def _path(self, kind: type) -> Path:
        return self._directory / f"{kind.__name__}.json"
