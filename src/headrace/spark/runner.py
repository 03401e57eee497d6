"""Turn a planned topology into one running streaming query."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.brokers.opening import open_log
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError, StreamsError
from headrace.metrics import MetricName, dropped_metrics
from headrace.spark.failures import error_from
from headrace.spark.lease import Lease, application_directory
from headrace.spark.notes import BatchNote, Control, Notes, PlannerNote
from headrace.spark.planning.plan import SparkPlan, plan_of
from headrace.spark.planning.preparing import prepare
from headrace.spark.program import ShippedProgram, make_program
from headrace.spark.query import start_query
from headrace.spark.session import open_session
from headrace.topology.topology import Topology

_MAX_SHUFFLE_PARTITIONS = 200
_PAUSE_SECONDS = 0.02


class Run:
    """One run of an application: from the lease on its state until the query has ended.

    Args:
        topology: What to run.
        config: How.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, *, paused: bool = False) -> None:
        self._topology = topology
        self._config = config
        self._application_id = config.require_application_id()
        self._directory = application_directory(config.state_dir, self._application_id)
        self.checkpoint = self._directory / "checkpoint"
        """Where Spark keeps progress and state."""
        self._lease = Lease(self._directory)
        self._run_directory: Path | None = None
        self.notes = Notes(self._directory / "not-started")
        """What the processes of the driver say; nothing before the start."""
        self._session: Any = None
        self._query: Any = None
        self._stopping = False
        self._clock: int | None = None
        self._paused = paused

    def start(self) -> None:
        """Take the lease, check everything that can be checked, and start the query."""
        plan = plan_of(self._topology, self._config)
        try:
            self._lease.acquire()
            self._start(plan)
        except BaseException as error:
            self.release()
            if isinstance(error, OSError):
                raise self._unwritable(error) from error
            raise

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"The state in {str(self._directory)!r} cannot be written: "
            f"{error.strerror or error}. Make room there, or give the application another "
            "`state_dir`."
        )

    def _start(self, plan: SparkPlan) -> None:
        log = open_log(self._config)
        try:
            layout, counts = prepare(
                plan, self._config, log, self.checkpoint, self._shuffle_partitions
            )
        finally:
            log.close()
        self._run_directory = Path(tempfile.mkdtemp(prefix="run-", dir=self._directory))
        self.notes = Notes(self._run_directory)
        self._tell()
        program = make_program(
            plan,
            self._config,
            layout,
            partition_counts=counts,
            run_directory=str(self._run_directory),
        )
        self._shipped = ShippedProgram.of(program)
        self.plan = plan
        self._start_query()

    def _shuffle_partitions(self, tasks: int) -> int:
        given = self._config.spark.get("spark.sql.shuffle.partitions")
        if given is not None:
            return int(given)
        self._open_session()
        cores = int(self._session.sparkContext.defaultParallelism)
        return max(1, min(tasks, cores, _MAX_SHUFFLE_PARTITIONS))

    def _open_session(self) -> None:
        if self._session is None:
            self._session = open_session(self._config, self._directory / "spark.log")

    def _start_query(self) -> None:
        self._open_session()
        self._query = start_query(
            self._session, self._shipped, self.checkpoint, self._config.trigger
        )

    def restart(self) -> None:
        """Start the query again in the same session, after it failed."""
        self._start_query()

    def is_active(self) -> bool:
        """Return whether the query runs."""
        return self._query is not None and bool(self._query.isActive)

    def error(self) -> StreamsError | None:
        """Return why the query ended; None if nothing went wrong."""
        exception = None if self._query is None else self._query.exception()
        if exception is None:
            return None
        text = str(exception)
        found = error_from(text)
        if found is not None:
            return found
        first = _reason(text)
        msg = (
            f"Spark ended the query of application {self._application_id!r}: {first} "
            f"The log is {str(self._directory / 'spark.log')!r}."
        )
        return StreamsError(msg)

    def stop(self, timeout: float) -> bool:
        """Let the running batch finish, then stop; return whether it finished in time."""
        self._stopping = True
        self._tell()
        deadline = time.monotonic() + timeout
        finished = not self.is_active()
        while not finished and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
            finished = self.notes.read(PlannerNote).quiet or not self.is_active()
        if self._query is not None:
            self._query.stop()
        return finished

    def pause(self, *, paused: bool) -> None:
        """Begin no further batch until told otherwise."""
        self._paused = paused
        self._tell()

    def set_clock(self, clock: int | None) -> None:
        """Let the time of day be ``clock``, or the real one again."""
        self._clock = clock
        self._tell()

    def _tell(self) -> None:
        self.notes.leave(Control(stopping=self._stopping, paused=self._paused, clock=self._clock))

    def has_planned(self) -> bool:
        """Return whether the source has looked at its topics."""
        return bool(self.notes.read(PlannerNote).offsets)

    def batch_number(self) -> int:
        """Return the number of the last batch that was written; -1 before the first of this run."""
        return self.notes.read(BatchNote).batch

    def positions(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield topic, partition, the next offset and the end of what is read."""
        note = self.notes.read(PlannerNote)
        for topic, offsets in note.offsets.items():
            ends = note.ends.get(topic, offsets)
            for partition, (offset, end) in enumerate(zip(offsets, ends, strict=False)):
                yield topic, partition, offset, end

    def metrics(self) -> dict[MetricName, float]:
        """Return what was counted in this run."""
        totals, planner = self.notes.read(BatchNote).totals, self.notes.read(PlannerNote)
        metrics: dict[MetricName, float] = {
            MetricName("stream-metrics", "batches-total"): totals.batches,
            MetricName("stream-metrics", "lost-offsets-total"): planner.lost,
            MetricName("stream-metrics", "batch-seconds"): planner.seconds,
        }
        for task, count in totals.processed.items():
            name = MetricName("stream-task-metrics", "process-total", (("task-id", task),))
            metrics[name] = count
            metrics |= dropped_metrics(task, totals.dropped.get(task, {}))
        for kind, counts in (
            ("records-produced-total", totals.written),
            ("records-refused-total", totals.refused),
        ):
            for topic, count in counts.items():
                metrics[MetricName("stream-topic-metrics", kind, (("topic", topic),))] = count
        return metrics

    def release(self) -> None:
        """Give back the lease; what was counted can still be read."""
        self._lease.release()
        if self._run_directory is not None:
            self.notes.keep()
            shutil.rmtree(self._run_directory, ignore_errors=True)


def _reason(text: str) -> str:
    """Return the line of Spark's exception that says most: the last one of a Python traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    return (python or lines or ["no reason given"])[0]
