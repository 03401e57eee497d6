"""Notes that the processes of a driver leave for each other: small files, replaced as a whole.

Spark runs the source's planner and the sink's commit in Python processes of their own, on the
machine of the driver. They meet in the directory of the run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace.engine.record_failures import FirstFailure
from headrace.runtime.exchange.packing import TaskReport

T = TypeVar("T")

LOST = "lost"
"""The reason under which batches count offsets that were gone before they were read."""


class Control(msgspec.Struct, frozen=True):
    """What the application asks of the source's planner."""

    stopping: bool = False
    """Whether no further batch may begin."""
    paused: bool = False
    clock: int | None = None
    """The time of day, if it is not the real one."""


class Totals(msgspec.Struct):
    """What the batches of a run came to."""

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

    @property
    def lost(self) -> int:
        """How many offsets were gone before they were read."""
        return sum(
            counts.get(LOST, 0) for topics in self.dropped.values() for counts in topics.values()
        )

    def add(self, reports: Iterable[TaskReport]) -> None:
        """Count what tasks did."""
        for report in reports:
            _add(self.processed, {report.task: report.processed})
            for node, counts in report.dropped.items():
                _add(self.dropped.setdefault(report.task, {}).setdefault(node, {}), counts)
            known = {(failure.node, failure.reason) for failure in self.failures}
            self.failures += [f for f in report.failures if (f.node, f.reason) not in known]

    def add_written(self, written: Mapping[str, int], refused: Mapping[str, int]) -> None:
        """Count what went to topics, and what did not."""
        _add(self.written, written)
        _add(self.refused, refused)


def _add(totals: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        totals[name] = totals.get(name, 0) + count


class BatchResult(msgspec.Struct, frozen=True):
    """What was done in the last batch that was written, and in all; left by the sink."""

    batch: int = -1
    reports: list[TaskReport] = []
    totals: Totals = msgspec.field(default_factory=Totals)


class PlannerStatus(msgspec.Struct, frozen=True):
    """What the source's planner knows."""

    is_drained: bool = False
    """Whether it was told to stop and no batch runs any more."""
    offsets: dict[str, list[int]] = {}
    """How far batches that ended have read."""
    ends: dict[str, list[int]] = {}
    """The ends of the topics when it last looked."""
    limit: int = 0
    """How many records a batch may have now."""
    seconds: float = 0.0
    """How long the last batch took."""


class RunFiles:
    """The notes of one run."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._kept: dict[type, msgspec.Struct] = {}

    def write(self, note: msgspec.Struct) -> None:
        """Leave a note in place of the last one of its kind; any thread may do so."""
        path = self._path(type(note))
        beside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        beside.write_bytes(msgspec.json.encode(note))
        beside.replace(path)

    def read(self, kind: type[T]) -> T:
        """Return the last note of a kind; if there is none, an empty one."""
        kept = self._kept.get(kind)
        if isinstance(kept, kind):
            return kept
        try:
            data = self._path(kind).read_bytes()
        except FileNotFoundError:
            return kind()
        return msgspec.json.decode(data, type=kind)

    def written_at(self, kind: type) -> float:
        """Return the time of day, in seconds, of the last note of a kind; 0 if there is none."""
        try:
            return self._path(kind).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def keep(self) -> None:
        """Remember the notes, because their files are about to go."""
        self._kept = {kind: self.read(kind) for kind in (Control, BatchResult, PlannerStatus)}

    def _path(self, kind: type) -> Path:
        return self._directory / f"{kind.__name__}.json"
