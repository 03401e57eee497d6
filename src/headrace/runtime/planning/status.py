"""The planner's status, for the other processes of the driver."""

from __future__ import annotations

import time
from collections.abc import Mapping

from headrace.brokers.log import TopicPartition
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.planning.admission import Admission
from headrace.runtime.run_files import PlannerStatus, RunFiles

_REPORT_SECONDS = 0.5


class StatusReport:
    """Writes how far batches are, and how far the topics reach, into a run file."""

    def __init__(self, run_files: RunFiles, admission: Admission) -> None:
        self._run_files = run_files
        self._admission = admission
        self._reported_at = 0.0
        self._reported: BatchBoundary | None = None
        self.seconds = 0.0
        """How long the last batch took."""

    def is_due(self, start: BatchBoundary) -> bool:
        """Return whether a batch has ended since the last report, or 0.5 s have passed."""
        is_old = time.monotonic() - self._reported_at > _REPORT_SECONDS
        return is_old or start != self._reported

    def write(
        self,
        start: BatchBoundary,
        ends: Mapping[TopicPartition, int],
        *,
        is_drained: bool = False,
    ) -> None:
        """Write the status. ``start`` is the end of the last batch."""
        self._reported_at, self._reported = time.monotonic(), start
        self._run_files.write(
            PlannerStatus(
                is_drained=is_drained,
                offsets=start.offsets,
                ends=_by_topic(ends),
                limit=self._admission.limit,
                seconds=self.seconds,
            )
        )


def _by_topic(ends: Mapping[TopicPartition, int]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(ends):
        by_topic.setdefault(partition.topic, []).append(ends[partition])
    return by_topic
