"""Turn a planned topology into one running streaming query."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from headrace.brokers.opening import embedded_path, open_log
from headrace.config import StreamsConfig
from headrace.errors import LeadershipLostError, StreamsError
from headrace.home import ApplicationHome, run_folder_before_start, work_dir
from headrace.metrics import MetricName
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.checks import check_checkpoint
from headrace.runtime.checkpoint.markers import commit_sentinel
from headrace.runtime.leadership import (
    Leadership,
    advising_standbys,
    check_leadership,
    open_leadership,
)
from headrace.runtime.plan import plan_topology
from headrace.runtime.planning.startup import check_start, prepare
from headrace.runtime.program import make_program
from headrace.runtime.run_files import BatchResult, Control, PlannerStatus, Restarts, RunFiles
from headrace.runtime.run_metrics import run_metrics
from headrace.spark.batch_log import spark_checkpoint
from headrace.spark.masters import is_on_this_machine, with_master
from headrace.spark.processes.followed_output import FollowedOutput, follow_output
from headrace.spark.processes.shadowing import check_module_names
from headrace.spark.query import start_query
from headrace.spark.session import (
    check_settings,
    java_has_ended,
    log_of_java,
    open_session,
    restore_local_folders,
)
from headrace.spark.shipping import ShippedProgram
from headrace.spark.worker_errors import (
    damaged_state_from,
    error_from,
    full_disk_from,
    reason_of,
    text_of,
    unwritten_state,
)
from headrace.topology.topology import Topology

_MAX_SHUFFLE_PARTITIONS = 200
_PAUSE_SECONDS = 0.02


class _ClosingError(Exception):
    """The application is closed before it was started."""


def _with_absolute_paths(config: StreamsConfig) -> StreamsConfig:
    """Return settings that mean the same in every process: Spark's work in other folders."""
    return config.with_settings(
        state_dir=config.state_dir.absolute(),
        work_dir=work_dir(config).absolute(),
        embedded_path=embedded_path(config).absolute(),
    )


class Run:
    """One run of an application: from the wait for its leadership until the query has ended.

    If ``closing`` is set, a start that is under way ends.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        paused: bool = False,
        closing: threading.Event | None = None,
    ) -> None:
        self._asked = config
        config = with_master(_with_absolute_paths(config))
        self._config = config
        self._closing = closing or threading.Event()
        self._application_id = config.require_application_id()
        self._found_home: ApplicationHome | None = None
        self.plan = plan_topology(topology, config)
        self._leadership: Leadership | None = None
        self._run_directory: Path | None = None
        self.run_files = RunFiles(run_folder_before_start(config))
        """The run files; empty before the start."""
        self._output: FollowedOutput | None = None
        self._opening: Future[Any] | None = None
        self._query: Any = None
        self._stopping = False
        self._cut_short = False
        self._clock: int | None = None
        self._paused = paused
        self._control_lock = threading.Lock()

    @property
    def _home(self) -> ApplicationHome:
        """The application's folders, which are named after the broker's cluster."""
        assert self._found_home is not None, "checked"
        return self._found_home

    @property
    def checkpoint(self) -> Checkpoint:
        """Return where Spark keeps progress and state."""
        return spark_checkpoint(self._application_id, self._home.checkpoint)

    def start(self) -> bool:
        """Check everything that can be checked, and start the query if no other process runs it.

        Returns whether it was started. If not, the application is closing, or this process stands
        by: call `take_over`.
        """
        with suppress(_ClosingError), self._released_on_failure():
            self._check_or_leave()
            self._leadership = open_leadership(self._config, self._home)
            start_timeout = self._leadership.start_timeout
            if start_timeout is None:
                return False
            self._open_session()
            return self._started_in(start_timeout)
        return False

    def take_over(self, seconds: float) -> bool:
        """Wait until no other process runs the application, then start the query.

        Returns whether it was started. If it fails although this process `leads`, it may be called
        again: that process has stopped, and would not come back.
        """
        with suppress(_ClosingError), self._released_on_failure(unless_it_leads=True):
            return self._started_in(seconds)
        return False

    def _started_in(self, seconds: float) -> bool:
        """Start the query if this process leads within some seconds; return whether it does."""
        assert self._leadership is not None, "started"
        deadline = time.monotonic() + seconds
        while not self._leadership.wait(_PAUSE_SECONDS):
            self._raise_if_closing()
            if time.monotonic() >= deadline:
                return False
        self._raise_if_closing()
        if self._leadership.is_lost():
            raise LeadershipLostError(self._application_id)
        self._start(self._leadership.leader_epoch)
        return True

    def leader(self) -> str:
        """Return the process that leads the application, for messages."""
        with self._released_on_failure():
            assert self._leadership is not None, "started"
            return self._leadership.leader()

    def leads(self) -> bool:
        """Return whether this process has taken over, or was the first."""
        return self._leadership is not None and self._leadership.leader_epoch > 0

    def has_lost_leadership(self) -> bool:
        return self._leadership is not None and self._leadership.is_lost()

    @contextmanager
    def _released_on_failure(self, *, unless_it_leads: bool = False) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            may_come_again = isinstance(error, (StreamsError, OSError))
            if not (unless_it_leads and may_come_again and self.leads()):
                self.release()
            if isinstance(error, OSError):
                raise self._not_started(error) from error
            if isinstance(error, _ClosingError) and self._opening is not None:
                wait([self._opening])  # otherwise Java would stay half started
            raise

    def _not_started(self, error: OSError) -> StreamsError:
        """Return our error for one of the operating system."""
        folder = self._config.state_dir if self._found_home is None else self._home.state
        return unwritten_state(error, folder) or StreamsError(
            f"Application {self._application_id!r} cannot start: {error}."
        )

    def _raise_if_closing(self) -> None:
        if self._closing.is_set():
            raise _ClosingError

    def _check_or_leave(self) -> None:
        """Run the checks in a thread, and abandon it if the application is closed.

        Nothing interrupts Kafka's client while it waits for a broker. It holds nothing yet.
        """
        checked: Future[None] = Future()

        def check() -> None:
            try:
                self._check()
                checked.set_result(None)
            except BaseException as error:
                checked.set_exception(error)

        threading.Thread(target=check, name=f"{self._application_id}-check", daemon=True).start()
        while not wait([checked], _PAUSE_SECONDS).done:
            self._raise_if_closing()
        checked.result()

    def _check(self) -> None:
        """Check settings, topics, checkpoint and program, before the wait for leadership."""
        log = open_log(self._config)
        try:
            check_settings(self._asked, is_local=log.is_local)
            # This process may already run another Spark, with another master.
            check_settings(self._config, is_local=log.is_local)
            if is_on_this_machine(self._config):  # else workers have other folders
                check_module_names()
            self._found_home = ApplicationHome.of(self._config, log.cluster_id())
            with advising_standbys(log, self._home):
                self._home.check_layout()
                layout = check_start(self.plan, self._config, log, self.checkpoint)
        finally:
            log.close()
        ShippedProgram.of(
            make_program(
                self.plan,
                self._config,
                layout,
                partition_counts={},
                run_directory="",
                leader_epoch=0,
            )
        )

    def _start(self, leader_epoch: int) -> None:
        opening = self._open_session()
        self._home.create()
        log = open_log(self._config)
        try:
            layout, counts = prepare(
                self.plan,
                self._config,
                log,
                self.checkpoint,
                self._shuffle_partitions,
            )
            self._raise_if_closing()
            # The start may have taken long, and another leader must not be disturbed.
            check_leadership(log, self._application_id, leader_epoch)
            check_checkpoint(self._config, log, layout, self.checkpoint)
            commit_sentinel(self._config, log, layout, self.checkpoint, leader_epoch)
        finally:
            log.close()
        if self._run_directory is None:  # else the last attempt has left it
            self._run_directory = self._home.new_run_folder()
            self.run_files = RunFiles(self._run_directory)
            self._output = follow_output(self._run_directory)
        self._write_control()
        program = make_program(
            self.plan,
            self._config,
            layout,
            partition_counts=counts,
            run_directory=str(self._run_directory),
            leader_epoch=leader_epoch,
        )
        self._shipped = ShippedProgram.of(program)
        wait([opening])
        self._raise_if_closing()
        self._start_query()

    def _shuffle_partitions(self, tasks: int) -> int:
        given = self._config.spark.get("spark.sql.shuffle.partitions")
        if given is not None:
            return int(given)
        cores = int(self._session.sparkContext.defaultParallelism)
        return max(1, min(tasks, cores, _MAX_SHUFFLE_PARTITIONS))

    def _open_session(self) -> Future[Any]:
        """Begin to open the session. The start of Java takes seconds."""
        if self._opening is None:
            opener = ThreadPoolExecutor(2, f"{self._application_id}-spark")
            self._opening = opener.submit(open_session, self._config, self._home.spark_log)
            # PySpark imports this at its first call to Java. Import it while Java starts.
            opener.submit(import_module, "pyspark.testing")
            opener.shutdown(wait=False)
        return self._opening

    @property
    def _session(self) -> Any:
        return self._open_session().result()

    def _start_query(self) -> None:
        session = self._session
        trigger = self._config.trigger
        if isinstance(trigger, timedelta):
            trigger = "continuous"  # the planner keeps the interval
        with self._translating_errors():
            self._query = start_query(session, self._shipped, self.checkpoint.folder, trigger)

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            failure = self._failure(error, "failed under", "Start it again. ")
            raise failure from failure.__cause__ or error

    def _failure(self, error: Exception, did: str, remedy: str = "") -> StreamsError:
        """Return the error of a worker, or one of ours for an error of Spark."""
        text = text_of(error)
        found = (
            error_from(text)
            or full_disk_from(text, self._home.state)
            or damaged_state_from(text, self.checkpoint.folder, self._application_id)
        )
        if found is None and isinstance(error, Py4JError | OSError) and java_has_ended():
            return StreamsError(
                f"The Java process (JVM) of application {self._application_id!r} has ended: it was "
                f"killed, or ran out of memory. Start the application again. The log is "
                f"{str(log_of_java(self._home.spark_log))!r}."
            )
        return found or StreamsError(
            f"Spark {did} application {self._application_id!r}: {reason_of(error)}. "
            f"{remedy}The log is {str(log_of_java(self._home.spark_log))!r}."
        )

    def restart(self) -> None:
        """Start the query again in the same session, after it failed."""
        cause = type(self.error()).__name__
        counts = self.run_files.read(Restarts).counts
        self.run_files.write(Restarts({**counts, cause: counts.get(cause, 0) + 1}))
        with self._translating_errors():
            restore_local_folders(self._session)
        self._start_query()

    def is_active(self) -> bool:
        if self._query is None:
            return False
        with self._translating_errors():
            return bool(self._query.isActive)

    def error(self) -> StreamsError | None:
        """Return why the query ended; None if nothing went wrong, or `stop` cut it short."""
        if self.has_lost_leadership():
            return LeadershipLostError(self._application_id)
        if self._query is None or self._cut_short:
            return None
        with self._translating_errors():
            exception: Exception | None = self._query.exception()
            if exception is None:
                return None
            return self._failure(exception, "ended the query of")

    def stop(self, timeout: float) -> bool:
        """Wait for the running batch, then stop; return whether it finished in time.

        A batch that has failed has not finished: `error` returns the reason.
        """
        self._stopping = True
        self._write_control()
        deadline = time.monotonic() + timeout
        while self.is_active() and not self._is_drained() and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        finished = self._is_drained()
        self._cut_short = self._cut_short or (not finished and self.is_active())
        if self._query is not None:
            with self._translating_errors():
                self._query.stop()
        return finished or (not self._cut_short and self.error() is None)

    def _is_drained(self) -> bool:
        """Return whether the planner has committed how far the last batch read."""
        return self.run_files.read(PlannerStatus).is_drained

    def pause(self, *, paused: bool) -> None:
        self._paused = paused
        self._write_control()

    def set_clock(self, clock: int | None) -> None:
        """Set the time of day of batches; None for the system clock."""
        self._clock = clock
        self._write_control()

    def _write_control(self) -> None:
        # Locked, so that an older state cannot overwrite a newer one.
        with self._control_lock:
            if self._run_directory is None:
                return  # there is no run yet
            control = Control(stopping=self._stopping, paused=self._paused, clock=self._clock)
            self.run_files.write(control)

    def has_planned(self) -> bool:
        """Return whether the planner has written a status, even if there are no topics yet."""
        return self.run_files.read(PlannerStatus) != PlannerStatus()

    def last_look(self) -> float:
        """Return the time of day, in seconds, of the planner's last report."""
        return self.run_files.written_at(PlannerStatus)

    def batch_number(self) -> int:
        """Return the number of the last batch that was written; -1 before the first of this run."""
        return self.run_files.read(BatchResult).batch

    def positions(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield topic, partition, next offset and end offset of each input partition."""
        note = self.run_files.read(PlannerStatus)
        for topic, offsets in note.offsets.items():
            ends = note.ends.get(topic, offsets)
            for partition, (offset, end) in enumerate(zip(offsets, ends, strict=False)):
                yield topic, partition, offset, end

    def metrics(self) -> dict[MetricName, float]:
        totals = self.run_files.read(BatchResult).totals
        return run_metrics(totals, self.run_files.read(PlannerStatus).seconds)

    def first_failures(self) -> list[str]:
        planned = (planned.subtopology for planned in self.plan.subtopologies)
        origins = {
            name: node.origin
            for subtopology in (*planned, *self.plan.global_subtopologies)
            for name, node in subtopology.nodes.items()
        }
        lines = (
            (failure.text, failure.line or origins.get(failure.node))
            for failure in self.run_files.read(BatchResult).totals.failures
        )
        return [f"{text}, at {line}." if line else f"{text}." for text, line in lines]

    def release(self, *, whole_application: bool = False) -> None:
        """Release the leadership, or shut the whole application down. Counts can still be read."""
        if self._leadership is not None:
            self._leadership.release(whole_application=whole_application)
            self._leadership = None
        if self._output is not None:
            self._output.close()
            self._output = None
        with self._control_lock:
            if self._run_directory is not None:
                self.run_files.keep()
                shutil.rmtree(self._run_directory, ignore_errors=True)
                self._run_directory = None
