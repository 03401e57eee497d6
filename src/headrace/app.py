"""KafkaStreams: a topology together with the settings it runs with, from start to close."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

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
from headrace.topology.topology import Topology

if TYPE_CHECKING:
    from headrace.spark.runner import Run

_log = logging.getLogger("headrace")

_POLL_SECONDS = 0.1
_FIRST_BACK_OFF = 0.5
_LAST_BACK_OFF = 30.0
_SETTLED_SECONDS = 30.0
"""A query that still looks at its topics after this time works again, also if it finds nothing."""
_FOREVER = 10.0**9

_PERMANENT = (
    CheckpointError,
    ConfigError,
    RecordError,
    StateStoreError,
    TopologyError,
    UnshippableError,
)
"""Errors that would come again: trying once more does not help."""


class State(Enum):
    """What an application is doing: the states of Kafka's client."""

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
        """Return whether the application is over."""
        return self in (State.NOT_RUNNING, State.ERROR)


class StreamThreadExceptionResponse(Enum):
    """What an uncaught exception handler wants to happen."""

    REPLACE_THREAD = "REPLACE_THREAD"
    """Start again where the last batch ended."""
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    """Stop this application with an error."""
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"
    """The same, and those that stand by end too, with an error: none takes over."""


class LagInfo(NamedTuple):
    """How far the application is behind in one partition."""

    current_offset_position: int
    end_offset_position: int
    offset_lag: int


class _Attempts:
    """Attempts to start: since when none succeeded, and how long to wait before the next."""

    def __init__(self) -> None:
        self.succeed()

    def succeed(self) -> None:
        """Begin anew: the next failure is a first one."""
        self._pause = _FIRST_BACK_OFF
        self._failing_since: float | None = None

    def fail(self) -> float:
        """Take note of a failure; return how many seconds ago the first one was."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since

    def next_pause(self) -> float:
        """Return how many seconds to wait now; the next time it is twice as long."""
        pause, self._pause = self._pause, min(_LAST_BACK_OFF, 2 * self._pause)
        return pause


StateListener = Callable[[State, State], None]
ExceptionHandler = Callable[[StreamsError], StreamThreadExceptionResponse]


class KafkaStreams:
    """An application: what to run, and how. Making one starts nothing and imports no Spark.

    Args:
        topology: What to run.
        config: Settings, as a config or a mapping of Kafka's dotted names.
        settings: Settings as keywords; they win over ``config``.

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
        self.config = StreamsConfig.merged(config, settings)
        """The settings, all of them."""
        self.config.require_application_id()
        topology.lowered(topology_defaults(self.config))  # refuses what could not run
        self.topology = topology
        """What runs."""
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
        self._ends_for_all = False
        self._paused = False
        self._supervisor: threading.Thread | None = None

    def start(self) -> None:
        """Start the application and return; it goes on in the background.

        If another process runs it, this one stands by: it is ``REBALANCING`` until that process has
        ended, and then goes on where that ended. If another thread closes it meanwhile, nothing is
        started.

        Raises:
            StreamsError: It was started before, or it cannot run.
        """
        with _extra_needed():
            from headrace.spark.runner import Run
        if not self._set_state(State.REBALANCING, only_from=State.CREATED):
            msg = (
                f"Application {self.config.application_id!r} was started before: it is "
                f"{self._state.value}. Make a new `KafkaStreams` to run it again."
            )
            raise StreamsError(msg)
        try:
            run = Run(self.topology, self.config, paused=self._paused, closing=self._closing)
            if run.start():
                self._show(run)
            elif not self._closing.is_set():
                self._leader = run.leader()
        except BaseException as error:
            self._error = self._naming_log(error) if isinstance(error, StreamsError) else None
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

        Settings of ``headrace.toml`` and of the environment are laid over those of the program.
        """
        with _extra_needed():
            from headrace.foreground import run_in_foreground

        self.config = self.config.overlaid_by(StreamsConfig.load())
        return run_in_foreground(self)

    def close(self, timeout: Duration | None = None) -> bool:
        """Stop after the running batch; return whether that was finished in time.

        It was not if the query has failed and was not started again yet: the log tells why, and the
        next start does what is left of the batch. A start that another thread waits for ends too; a
        Java that is starting is waited for.

        Args:
            timeout: How long to wait; without it, as long as the batch takes.

        Raises:
            StreamsError: It ended because of this error: another attempt would not help.
        """
        seconds = _FOREVER if timeout is None else duration_ms(timeout, what="timeout") / 1000
        if self._set_state(State.PENDING_SHUTDOWN, only_from=State.CREATED):
            self._set_state(State.NOT_RUNNING)
            self._finished = True
            return True
        self._close_deadline = time.monotonic() + seconds
        self._closing.set()
        if threading.current_thread() is self._supervisor:
            return False  # a listener or handler asks: it would wait for itself
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
        """Return what the application is doing."""
        return self._state

    def leader(self) -> str | None:
        """Say which process runs the application while this one stands by; else return None."""
        return self._leader

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Call ``listener(new, old)`` at each change of state.

        Raises:
            StreamsError: The application was started already.
        """
        self._check_created("a state listener")
        self._listener = listener

    def set_uncaught_exception_handler(self, handler: ExceptionHandler | None) -> None:
        """Let ``handler(error)`` decide what happens when the application fails.

        Raises:
            StreamsError: The application was started already.
        """
        self._check_created("an uncaught exception handler")
        self._handler = handler

    def pause(self) -> None:
        """Begin no further batch until `resume`."""
        self._set_paused(paused=True)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._set_paused(paused=False)

    def is_paused(self) -> bool:
        """Return whether the application is paused."""
        return self._paused

    def clean_up(self) -> None:
        """Forget state and progress, so that the next start is a first one.

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
        """Return what was counted since the start, under Kafka's metric names."""
        return {} if self._run is None else self._run.metrics()

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

    def _repr_html_(self) -> str:
        """Return a table of what is read, for a notebook."""
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

    def _show(self, run: Run) -> None:
        """Let what a run tells be seen; not before it is started: it can tell nothing yet."""
        self._run = run
        run.pause(paused=self._paused)  # it may have changed meanwhile

    def _supervise(self, run: Run) -> None:
        """Watch the query until it ends; start it again after what may pass."""
        try:
            if self._run is not None or self._take_over(run):
                self._watch(run)
        except BaseException as error:  # whatever it is, the application is over
            self._error = error if isinstance(error, StreamsError) else StreamsError(f"{error!r}")
        finally:
            for end in (
                lambda: run.stop(0),
                lambda: run.release(whole_application=self._ends_for_all),
            ):
                try:
                    end()
                except Exception:
                    _log.log(
                        logging.ERROR if self._error is None else logging.DEBUG,
                        "Application %r ended in disorder.",
                        self.config.application_id,
                        exc_info=True,
                    )
            if self._error is None:
                self._set_state(State.NOT_RUNNING)
            else:
                self._naming_log(self._error)
                self._set_state(State.PENDING_ERROR)
                self._set_state(State.ERROR)

    def _take_over(self, run: Run) -> bool:
        """Stand by until no other process runs the application; return whether this one does."""
        name = self.config.application_id
        if self._leader is not None:
            _log.warning("%s runs application %r; this process stands by.", self._leader, name)
        attempts = _Attempts()
        while not self._closing.is_set():
            try:
                if not run.take_over(_POLL_SECONDS):
                    continue
            except StreamsError as error:
                # Who led before has stopped for good, so giving up would leave nobody.
                if not run.leads() or not self._should_retry(error, attempts.fail()):
                    raise
                self._pause_after(error, attempts)
                continue
            _log.warning("This process has taken over application %r.", name)
            self._leader = None
            self._show(run)
            return True
        self._set_state(State.PENDING_SHUTDOWN)
        self._finished = True
        return False

    def _watch(self, run: Run) -> None:
        attempts = _Attempts()
        progress, started = -1, time.time()
        not_started: StreamsError | None = None
        while not self._closing.is_set():
            if run.has_lost_leadership():
                raise LeadershipLostError(self.config.require_application_id())
            if run.is_active():
                if run.has_planned():
                    self._set_state(State.RUNNING)
                # Who is idle or paused has no batches, but still looks.
                if run.batch_number() > progress or run.last_look() > started + _SETTLED_SECONDS:
                    progress = run.batch_number()
                    attempts.succeed()
                self._closing.wait(_POLL_SECONDS)
                continue
            error = not_started or run.error()
            if error is None:
                self._finished = True
                self._set_state(State.PENDING_SHUTDOWN)
                return
            if not self._should_retry(error, attempts.fail()):
                self._error = error
                return
            self._set_state(State.REBALANCING)
            if not self._pause_after(error, attempts):
                self._set_state(State.PENDING_SHUTDOWN)
                self._leave_undone(error)
                return
            started = time.time()
            not_started = self._restarted(run)
        self._stop(run, attempts, not_started)

    def _stop(self, run: Run, attempts: _Attempts, not_started: StreamsError | None) -> None:
        """Let the running batch finish; if it fails, nobody tries it again."""
        self._set_state(State.PENDING_SHUTDOWN)
        self._finished = run.stop(max(0.0, self._close_deadline - time.monotonic()))
        error = None if self._finished else not_started or run.error()
        if error is None:
            return
        if self._should_retry(error, attempts.fail()):
            self._leave_undone(error)
        else:
            self._error = error

    def _leave_undone(self, error: StreamsError) -> None:
        """Say that nobody tries again what has failed before the next start."""
        _log.warning(
            "%s Application %r is closed before another attempt: its next start does what the last "
            "batch left undone.",
            error,
            self.config.application_id,
        )

    def _pause_after(self, error: StreamsError, attempts: _Attempts) -> bool:
        """Wait before another attempt; return whether to make it: not if closed meanwhile."""
        pause = attempts.next_pause()
        _log.warning("%s Starting again in %.1f s.", error, pause)
        return not self._closing.wait(pause)

    def _restarted(self, run: Run) -> StreamsError | None:
        """Start a query again; return why it was not started."""
        try:
            run.restart()
        except StreamsError as error:
            return error
        return None

    def _naming_log(self, error: StreamsError) -> StreamsError:
        """Let the commands in an error's message use the log and the folders of this one."""
        error.command_flags = log_flags(self.config)
        return error

    def _should_retry(self, error: StreamsError, failing_seconds: float) -> bool:
        self._naming_log(error)
        if isinstance(error, LeadershipLostError):
            return False  # whatever a handler says: another process does it
        if self._handler is not None:
            response = _ask(self._handler, error)
            self._ends_for_all = response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
            return response is StreamThreadExceptionResponse.REPLACE_THREAD
        patience = duration_ms(self.config.task_timeout, what="task_timeout") / 1000
        return not isinstance(error, _PERMANENT) and failing_seconds < patience


def _ask(handler: ExceptionHandler, error: StreamsError) -> StreamThreadExceptionResponse:
    """Return what a handler wants to happen: the end, if it fails itself."""
    try:
        return handler(error)
    except BaseException as failure:  # the error it was asked about is the one to see
        _log.exception("The uncaught exception handler failed at: %s", error)
        error.add_note(f"The uncaught exception handler failed too: {failure!r}")
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT


@contextlib.contextmanager
def _extra_needed() -> Iterator[None]:
    """Say what to install if an import fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        msg = (
            f"Running needs {error.name!r}, which is not installed. "
            "Install it with `pip install headrace[spark]`."
        )
        raise ConfigError(msg) from error
