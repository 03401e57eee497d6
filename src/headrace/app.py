"""KafkaStreams: a topology together with the settings it runs with, from start to close."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from headrace.application_text import application_text
from headrace.brokers.log import TopicPartition
from headrace.brokers.opening import log_flags, open_log
from headrace.config import Settings, StreamsConfig
from headrace.config.topology_defaults import topology_defaults
from headrace.durations import Duration, duration_ms
from headrace.errors import (
    CheckpointError,
    ConfigError,
    LeadershipLostError,
    RecordError,
    StateStoreError,
    StreamsError,
    TopologyError,
    UnshippableError,
)
from headrace.metrics import MetricName
from headrace.queried_streams import LagInfo, QueriedStreams
from headrace.served_streams import extra_needed
from headrace.topology.topology import Topology

if TYPE_CHECKING:
    from headrace.spark.runner import Run

_log = logging.getLogger("headrace")

_POLL_SECONDS = 0.1
_FIRST_BACK_OFF = 0.5
_LAST_BACK_OFF = 30.0
_RECOVERED_SECONDS = 30.0
"""A query that still plans after this time has recovered, even if it reads no records."""
_FOREVER = 10.0**9

_PERMANENT = (
    CheckpointError,
    ConfigError,
    RecordError,
    StateStoreError,
    TopologyError,
    UnshippableError,
)
"""Errors that a retry would raise again."""


class State(Enum):
    """The states of an application, as of Kafka's client."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"

    def is_running_or_rebalancing(self) -> bool:
        """Return whether the application works, or is about to."""
        return self in (State.RUNNING, State.REBALANCING)

    def has_ended(self) -> bool:
        """Return whether the application has ended."""
        return self in (State.NOT_RUNNING, State.ERROR)


class StreamThreadExceptionResponse(Enum):
    """The answer of an uncaught exception handler."""

    REPLACE_THREAD = "REPLACE_THREAD"
    """Restart the query after the last batch."""
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    """Stop this application with an error."""
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"
    """Stop it with an error, and its standbys too: none takes over."""


class _Backoff:
    """The pauses before restarts, and since when restarts have failed."""

    def __init__(self) -> None:
        self.succeed()

    def succeed(self) -> None:
        """Start from the shortest pause: the next failure is a first one."""
        self._pause = _FIRST_BACK_OFF
        self._failing_since: float | None = None

    def fail(self) -> float:
        """Record a failure; return how many seconds ago the first one was."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since

    def next_pause(self) -> float:
        """Return how many seconds to wait now; the next pause is twice as long."""
        pause, self._pause = self._pause, min(_LAST_BACK_OFF, 2 * self._pause)
        return pause


StateListener = Callable[[State, State], None]
ExceptionHandler = Callable[[StreamsError], StreamThreadExceptionResponse]


class KafkaStreams(QueriedStreams):
    """An application: a topology and its settings. Making one starts nothing and imports no Spark.

    Args:
        topology: The program.
        config: Settings, as a config or a mapping of Kafka's dotted names.
        settings: Settings as keywords; they override ``config``.

    Raises:
        TopologyError: The program is wrong, or a step has no serde.
        ConfigError: The settings are wrong, or there is no application id.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | None = None,
        /,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__()
        self.config = StreamsConfig.merged(config, settings)
        """The settings, all of them."""
        self.config.require_application_id()
        topology.lowered(topology_defaults(self.config))  # raises the errors of a run
        self.topology = topology
        """The program."""
        self._state = State.CREATED
        self._changed = threading.Condition()
        self._listener: StateListener | None = None
        self._handler: ExceptionHandler | None = None
        self._run: Run | None = None
        self._leader: str | None = None
        self._error: StreamsError | None = None
        self._closing = threading.Event()
        self._close_deadline = _FOREVER
        self._finished = False
        """Whether the last batch finished."""
        self._shuts_down_all = False
        """Whether the exception handler asked to end the standbys too."""
        self._paused = False
        self._logged_failures = 0
        self._supervisor: threading.Thread | None = None

    def start(self) -> None:
        """Start the application and return; it runs in the background.

        With an ``application_server`` it answers queries there, also while it stands by.

        If another process runs the application, this one stands by in state ``REBALANCING`` until
        that process ends, and then resumes after its last batch. If another thread calls `close`
        meanwhile, the application does not start.

        Raises:
            StreamsError: It was started before, or it cannot run.
        """
        with extra_needed("spark", "Running"):
            from headrace.spark.runner import Run
        if not self._set_state(State.REBALANCING, only_from=State.CREATED):
            msg = (
                f"Application {self.config.application_id!r} was started before: it is "
                f"{self._state.value}. Make a new `KafkaStreams` to run it again."
            )
            raise StreamsError(msg)
        try:
            self._start_service()
            run = Run(self.topology, self.config, paused=self._paused, closing=self._closing)
            if run.start():
                self._attach(run)
            elif not self._closing.is_set():
                self._leader = run.leader()
        except BaseException as error:
            self._error = (
                self._add_command_flags(error) if isinstance(error, StreamsError) else None
            )
            self._close_service()
            self._set_state(State.PENDING_ERROR)
            self._set_state(State.ERROR)
            raise
        self._supervisor = threading.Thread(
            target=self._supervise,
            args=(run,),
            name=f"{self.config.application_id}-supervisor",
            daemon=True,
        )
        self._supervisor.start()

    def run(self) -> int:
        """Run until stopped, as the command line does; return the exit code.

        Settings of ``headrace.toml`` and of the environment override those of the program.
        """
        with extra_needed("spark", "Running"):
            from headrace.foreground import run_in_foreground

        self.config = self.config.overlaid_by(StreamsConfig.load())
        return run_in_foreground(self)

    def close(self, timeout: Duration | None = None) -> bool:
        """Stop after the running batch; return whether the batch finished in time.

        Returns False if the query had failed and was waiting for a restart. The log has the reason;
        the next start finishes the batch. A start in another thread ends too, once its Java has
        started.

        Args:
            timeout: How long to wait; without it, as long as the batch takes.

        Raises:
            StreamsError: The application ended because of this error, which a retry would repeat.
        """
        seconds = _FOREVER if timeout is None else duration_ms(timeout, what="timeout") / 1000
        if self._set_state(State.PENDING_SHUTDOWN, only_from=State.CREATED):
            self._set_state(State.NOT_RUNNING)
            self._finished = True
            return True
        self._close_deadline = time.monotonic() + seconds
        self._closing.set()
        if threading.current_thread() is self._supervisor:
            return False  # a listener or handler of this thread would wait for itself
        return self.await_termination(timeout) and self._finished

    def await_termination(self, timeout: Duration | None = None) -> bool:
        """Wait until the application has ended; return whether it has.

        Args:
            timeout: How long to wait; without it, for as long as it takes.

        Raises:
            StreamsError: It ended because of this error.
        """
        seconds = None if timeout is None else duration_ms(timeout, what="timeout") / 1000
        with self._changed:
            ended = self._changed.wait_for(lambda: self._state.has_ended(), seconds)
        if self._error is not None and ended:
            raise self._error
        return ended

    def __enter__(self) -> KafkaStreams:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(StreamsError):  # the first error is the one to see
            self.close()

    def state(self) -> State:
        """Return the state of the application."""
        return self._state

    def leader(self) -> str | None:
        """Return the process that runs the application while this one stands by, or None."""
        return self._leader

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Call ``listener(new, old)`` at each change of state.

        Raises:
            StreamsError: The application was started already.
        """
        self._check_created("a state listener")
        self._listener = listener

    def set_uncaught_exception_handler(self, handler: ExceptionHandler | None) -> None:
        """Ask ``handler(error)`` whether to restart or to stop when the application fails.

        Raises:
            StreamsError: The application was started already.
        """
        self._check_created("an uncaught exception handler")
        self._handler = handler

    def pause(self) -> None:
        """Begin no further batch until `resume`."""
        self._set_paused(paused=True)

    def resume(self) -> None:
        """Begin batches again after `pause`."""
        self._set_paused(paused=False)

    def is_paused(self) -> bool:
        """Return whether the application is paused."""
        return self._paused

    def clean_up(self) -> None:
        """Delete state and progress, so that the next start is a first one.

        Raises:
            StreamsError: The application runs, here or in another process.
        """
        if self._state not in (State.CREATED, State.NOT_RUNNING, State.ERROR):
            msg = (
                f"Application {self.config.application_id!r} is {self._state.value}, so its state "
                "cannot be deleted. Close it first."
            )
            raise StreamsError(msg)
        from headrace.clients.reset import forget_application
        from headrace.home import ApplicationHome
        from headrace.runtime.leadership import locks_of

        with contextlib.ExitStack() as stack:
            log = stack.enter_context(contextlib.closing(open_log(self.config)))
            home = ApplicationHome.of(self.config, log.cluster_id())
            home.create()
            for lock in locks_of(log, home):
                stack.enter_context(lock)
            forget_application(log, home)

    def metrics(self) -> dict[MetricName, float]:
        """Return the counts since the start, under Kafka's metric names."""
        return {} if self._run is None else self._run.metrics()

    def first_failures(self) -> list[str]:
        """Return the first failure that a handler skipped, for each step and reason."""
        return [] if self._run is None else self._run.first_failures()

    def last_batch(self) -> int | None:
        """Return the number of the last batch that was written, as in Spark's log.

        It is None before the first one of this run.
        """
        number = -1 if self._run is None else self._run.batch_number()
        return None if number < 0 else number

    def lag(self) -> dict[TopicPartition, LagInfo]:
        """Return how far the application is behind in each partition it reads."""
        if self._run is None:
            return {}
        return {
            TopicPartition(topic, partition): LagInfo(offset, end, max(0, end - offset))
            for topic, partition, offset, end in self._run.positions()
        }

    def __str__(self) -> str:
        """Return the state, the tasks and where they run, the stores, and the topology."""
        positions = {
            (name.topic, name.partition): (info.current_offset_position, info.offset_lag)
            for name, info in self.lag().items()
        }
        topology = self.topology.lowered(topology_defaults(self.config)).description
        return application_text(self.config, self._state.name, self._leader, topology, positions)

    def _repr_html_(self) -> str:
        """Return a table of the progress in each partition, for a notebook."""
        rows = "".join(
            f"<tr><td>{escape(name.topic)}</td><td>{name.partition}</td>"
            f"<td>{info.current_offset_position}</td><td>{info.offset_lag}</td></tr>"
            for name, info in sorted(self.lag().items())
        )
        return (
            f"<p><b>{escape(str(self.config.application_id))}</b> {self._state.value}</p>"
            "<table><tr><th>topic</th><th>partition</th><th>offset</th><th>lag</th></tr>"
            f"{rows}</table>"
        )

    def _set_paused(self, *, paused: bool) -> None:
        self._paused = paused
        if self._run is not None and not self._state.has_ended():
            self._run.pause(paused=paused)

    def _check_created(self, what: str) -> None:
        if self._state is not State.CREATED:
            msg = f"The application is {self._state.value}. Set {what} before `start()`."
            raise StreamsError(msg)

    def _check_running(self, what: str) -> None:
        if self._state is State.CREATED:
            msg = f"The application was not started. Call `start()` before {what}."
            raise StreamsError(msg)
        if self._state.has_ended():
            msg = f"The application has ended: it is {self._state.value}. Call {what} before that."
            raise StreamsError(msg)

    def _set_state(self, new: State, *, only_from: State | None = None) -> bool:
        with self._changed:
            old = self._state
            if only_from is not None and old is not only_from:
                return False
            if old is not new:
                name = self.config.application_id
                _log.info("Application %r went from %s to %s.", name, old.value, new.value)
            self._state = new
            self._changed.notify_all()
        if old is not new and self._listener is not None:
            try:
                self._listener(new, old)
            except Exception:
                _log.exception("The state listener failed at %s.", new.value)
        return True

    def _attach(self, run: Run) -> None:
        """Report metrics and progress of a run from now on; before its start it has none."""
        self._run = run
        run.pause(paused=self._paused)  # it may have changed meanwhile

    def _supervise(self, run: Run) -> None:
        """Watch the query until it ends; restart it after retriable errors."""
        try:
            if self._run is not None or self._take_over(run):
                self._watch(run)
                self._log_failures(run)
        except BaseException as error:  # whatever it is, the application has ended
            self._error = error if isinstance(error, StreamsError) else StreamsError(f"{error!r}")
        finally:
            for end in (
                self._close_copy,
                self._close_service,
                lambda: run.stop(0),
                lambda: run.release(whole_application=self._shuts_down_all),
            ):
                try:
                    end()
                except Exception:
                    _log.log(
                        logging.ERROR if self._error is None else logging.DEBUG,
                        "Application %r did not shut down cleanly.",
                        self.config.application_id,
                        exc_info=True,
                    )
            if self._error is None:
                self._set_state(State.NOT_RUNNING)
            else:
                self._add_command_flags(self._error)
                self._set_state(State.PENDING_ERROR)
                self._set_state(State.ERROR)

    def _take_over(self, run: Run) -> bool:
        """Stand by until this process leads; return False if the application is closed first."""
        name = self.config.application_id
        if self._leader is not None:
            _log.warning("%s runs application %r; this process stands by.", self._leader, name)
        backoff = _Backoff()
        while not self._closing.is_set():
            try:
                if not run.take_over(_POLL_SECONDS):
                    continue
            except StreamsError as error:
                # The previous leader has stopped for good, so no other process would lead.
                if not run.leads() or not self._should_retry(error, backoff.fail()):
                    raise
                self._pause_after(error, backoff)
                continue
            _log.warning("This process has taken over application %r.", name)
            self._leader = None
            self._attach(run)
            return True
        self._set_state(State.PENDING_SHUTDOWN)
        self._finished = True
        return False

    def _log_failures(self, run: Run) -> None:
        for failure in run.first_failures()[self._logged_failures :]:
            self._logged_failures += 1
            _log.warning("%s", failure)

    def _watch(self, run: Run) -> None:
        backoff = _Backoff()
        progress, started = -1, time.time()
        not_started: StreamsError | None = None  # the error of a restart that failed
        while not self._closing.is_set():
            if run.has_lost_leadership():
                raise LeadershipLostError(self.config.require_application_id())
            if run.is_active():
                if run.has_planned():
                    self._set_state(State.RUNNING)
                # An idle or paused query has no batches, but still reads its topics' ends.
                if run.batch_number() > progress or run.last_look() > started + _RECOVERED_SECONDS:
                    progress = run.batch_number()
                    backoff.succeed()
                    self._log_failures(run)
                self._closing.wait(_POLL_SECONDS)
                continue
            error = not_started or run.error()
            if error is None:
                self._finished = True
                self._set_state(State.PENDING_SHUTDOWN)
                return
            if not self._should_retry(error, backoff.fail()):
                self._error = error
                return
            self._set_state(State.REBALANCING)
            if not self._pause_after(error, backoff):
                self._set_state(State.PENDING_SHUTDOWN)
                self._log_unfinished(error)
                return
            started = time.time()
            not_started = self._restarted(run)
        self._stop(run, backoff, not_started)

    def _stop(self, run: Run, backoff: _Backoff, not_started: StreamsError | None) -> None:
        """Wait for the running batch; if it fails, the next start replays it."""
        self._set_state(State.PENDING_SHUTDOWN)
        self._finished = run.stop(max(0.0, self._close_deadline - time.monotonic()))
        error = None if self._finished else not_started or run.error()
        if error is None:
            return
        if self._should_retry(error, backoff.fail()):
            self._log_unfinished(error)
        else:
            self._error = error

    def _log_unfinished(self, error: StreamsError) -> None:
        """Log that a failed batch waits for the next start."""
        _log.warning(
            "%s Application %r is closed before a retry; its next start finishes the last batch.",
            error,
            self.config.application_id,
        )

    def _pause_after(self, error: StreamsError, backoff: _Backoff) -> bool:
        """Wait before a retry; return False if the application is closed meanwhile."""
        pause = backoff.next_pause()
        _log.warning("%s Starting again in %.1f s.", error, pause)
        return not self._closing.wait(pause)

    def _restarted(self, run: Run) -> StreamsError | None:
        """Restart the query; return the error if it does not start."""
        try:
            run.restart()
        except StreamsError as error:
            return error
        return None

    def _add_command_flags(self, error: StreamsError) -> StreamsError:
        """Set the flags by which commands in the error's message use this log and these folders."""
        error.command_flags = log_flags(self.config)
        return error

    def _should_retry(self, error: StreamsError, failing_seconds: float) -> bool:
        self._add_command_flags(error)
        if isinstance(error, LeadershipLostError):
            return False  # whatever a handler answers: another process continues
        if self._handler is not None:
            response = _ask(self._handler, error)
            self._shuts_down_all = response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
            return response is StreamThreadExceptionResponse.REPLACE_THREAD
        timeout = duration_ms(self.config.task_timeout, what="task_timeout") / 1000
        return not isinstance(error, _PERMANENT) and failing_seconds < timeout


def _ask(handler: ExceptionHandler, error: StreamsError) -> StreamThreadExceptionResponse:
    """Return the answer of a handler; if it fails, the application stops."""
    try:
        return handler(error)
    except BaseException as failure:  # the caller raises the first error
        _log.exception("The uncaught exception handler failed at: %s", error)
        error.add_note(f"The uncaught exception handler failed too: {failure!r}")
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
