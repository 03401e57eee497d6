"""Measures the phases of the batches."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.metrics import BATCH_SECONDS, Histogram
from headrace.runtime.run_files import BatchResult, RunFiles

PLAN, PREPARE, RUN, FINISH = "plan", "prepare", "run", "finish"


class BatchPhases:
    """Times the phases of the batches of one planner.

    ::

        plan      the planner reads the ends of the inputs, and decides what the batch reads
        prepare   Spark writes its batch log, and plans the query
        run       tasks process records, and the sink writes the output
        finish    Spark commits the batch, and asks for the next one
    """

    def __init__(
        self,
        run_files: RunFiles,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._run_files = run_files
        self._clock, self._now = clock, now
        self._began = self._clock()
        self._is_running = False
        self.histograms: dict[str, Histogram] = {}
        """By phase."""

    def begin_plan(self) -> None:
        """Begin to plan. Without records to read, the planner begins again later."""
        self._began = self._clock()

    def planned(self) -> None:
        """End the planning of a batch."""
        self._next(PLAN)

    def runs(self) -> None:
        """Begin to run the batch. Spark may ask for its splits again."""
        if not self._is_running:
            self._next(PREPARE)
        self._is_running = True

    def ended(self) -> None:
        """End the batch, because the planner is asked for the next one."""
        if not self._is_running:
            return
        self._is_running = False
        seconds = self._clock() - self._began
        # The sink has written its result at the end of the run, in another process.
        finish = max(0.0, self._now() - self._run_files.written_at(BatchResult))
        if finish <= seconds:
            self._add(FINISH, finish)

    def ran(self, seconds: float) -> None:
        """Add how long a run has taken."""
        self._add(RUN, seconds)

    def _next(self, phase: str) -> None:
        now = self._clock()
        self._add(phase, now - self._began)
        self._began = now

    def _add(self, phase: str, seconds: float) -> None:
        self.histograms.setdefault(phase, Histogram()).add([seconds], BATCH_SECONDS)
