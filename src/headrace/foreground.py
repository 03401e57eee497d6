"""Run an application in the foreground: signals stop it, and its progress is shown."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from itertools import zip_longest
from operator import attrgetter
from types import FrameType, TracebackType
from typing import Any, Protocol

from rich.console import Console

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.brokers.opening import open_log
from headrace.config import StreamsConfig
from headrace.config.topology_defaults import topology_defaults
from headrace.control_characters import escape_controls
from headrace.errors import StreamsError
from headrace.metrics import MetricName
from headrace.progress_view import ChangedResult, RunSnapshot, TopicProgress, show_progress
from headrace.serdes.base import Serde, serde_for_topic
from headrace.topology.nodes import SinkNode
from headrace.topology.topology import Topology

_log = logging.getLogger("headrace")

_UNFINISHED = 1
_INTERRUPTED = 130
_TAIL = 12
_TAIL_SECONDS = 0.5
_LAST_PASS_SECONDS = 1.0
_POLL_MS = 200
_LINE = "%(asctime)s %(levelname)s %(message)s"
_STARTING = "Starting Spark"
_STOPPING = "Stopping after the running batch; once more stops at once."
_OVER = {"PENDING_SHUTDOWN", "NOT_RUNNING", "PENDING_ERROR", "ERROR"}


class Application(Protocol):
    """The part of `KafkaStreams` that the foreground uses."""

    config: StreamsConfig
    topology: Topology

    def start(self) -> None: ...
    def close(self, timeout: Any = None, /) -> bool: ...
    def await_termination(self, timeout: Any = None, /) -> bool: ...
    def state(self) -> Any: ...
    def metrics(self) -> dict[MetricName, float]: ...
    def first_failures(self) -> list[str]: ...
    def last_batch(self) -> int | None: ...
    def lag(self) -> Mapping[TopicPartition, Any]: ...
    def leader(self) -> str | None: ...


def run_in_foreground(application: Application) -> int:
    """Run an application as `run_until_stopped` does; if it fails, write why and return 1.

    It is shown on a terminal, and as lines elsewhere. A program that has set up logging gets the
    lines there instead.
    """
    terminal = Console() if sys.stdout.isatty() else None
    level = logging.INFO if terminal is None else logging.WARNING
    with nullcontext() if _log.hasHandlers() else log_lines(level):
        try:
            return run_until_stopped(application, terminal)
        except StreamsError as error:
            notes = getattr(error, "__notes__", ())
            sys.stderr.write(escape_controls("\n".join([str(error), *notes, ""]), keep="\n\t"))
            return 1


def run_until_stopped(application: Application, terminal: Console | None) -> int:
    """Run an application until it ends or a signal stops it; return the exit code.

    0: it ended, or a signal stopped it after a batch. 1: it was stopped after a failure, before a
    retry. 130: a second signal interrupted a batch. After 1 and 130 the next start replays it.
    Without a ``terminal`` it logs lines.

    Raises:
        StreamsError: It failed, or cannot run.
    """
    stop = threading.Event()
    tail = Tail(application.config, {} if terminal is None else _written(application))
    snapshots = Snapshots(application, tail, stop)
    with _signals(application, stop):
        try:
            every = application.config.log_summary_interval
            with show_progress(snapshots.take, _log.info, terminal, every=every):
                application.start()
                with tail:  # after the start, which has reached the broker
                    while not application.await_termination(_POLL_MS):
                        snapshots.look()
        except StreamsError:
            if stop.is_set() and application.state().value == "NOT_RUNNING":
                return 0  # it was closed before it could be started
            raise
        except KeyboardInterrupt:
            return _INTERRUPTED
    return (
        0 if application.close() else _UNFINISHED
    )  # it has ended; `close` returns whether its batch finished


@contextmanager
def log_lines(level: int, formatter: logging.Formatter | None = None) -> Iterator[None]:
    """Write Headrace's log to standard output, and nowhere else, while the block runs."""
    lines = _Lines()
    lines.setFormatter(formatter or logging.Formatter(_LINE))
    before = (_log.level, _log.propagate)
    _log.setLevel(level)
    _log.propagate = False
    _log.addHandler(lines)
    try:
        yield
    finally:
        _log.removeHandler(lines)
        _log.setLevel(before[0])
        _log.propagate = before[1]


class _Lines(logging.Handler):
    """Writes to the current standard output: a live view replaces it while it runs."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a reader that went away must not end the application
            text = escape_controls(self.format(record), keep="\n\t")
            # Indented, so that a message that quotes a record cannot forge a line.
            sys.stdout.write(text.replace("\n", "\n  ") + "\n")
            sys.stdout.flush()


@contextmanager
def _signals(application: Application, stop: threading.Event) -> Iterator[None]:
    """Close the application on SIGINT and SIGTERM; a second signal interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def close() -> None:
        _log.info(_STOPPING)
        with suppress(StreamsError):  # the main thread gets the error too
            application.close()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        # In a thread of its own: the main one may be starting the application, or writing.
        threading.Thread(target=close, name="close", daemon=True).start()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Snapshots:
    """Takes snapshots of a running application; rates are since the one before.

    Counts begin at the offsets at which the application began to run; snapshots
    may come much later, so the thread that waits for the end calls `look` until then.
    """

    def __init__(
        self,
        application: Application,
        tail: Callable[[], tuple[ChangedResult, ...]],
        stop: threading.Event,
    ) -> None:
        self._application = application
        self._tail = tail
        self._stop = stop
        self._began = time.monotonic()
        self._first: dict[TopicPartition, int] = {}
        self._before: tuple[float, dict[str, int], float] | None = None
        self._rates: tuple[dict[str, float], float] | None = None

    def look(self) -> tuple[str, Mapping[TopicPartition, Any]]:
        """Return the state of the application, and how far it is."""
        state = self._application.state().value  # first: a running application knows its topics
        lag = self._application.lag()
        if self._before is None and (lag or state == "RUNNING"):
            self._first = {name: info.current_offset_position for name, info in lag.items()}
            self._before = (time.monotonic(), {}, 0.0)
        return state, lag

    def take(self) -> RunSnapshot:
        application = self._application
        state, lag = self.look()
        metrics = application.metrics()
        read: dict[str, int] = {}
        behind: dict[str, int] = {}
        for name, info in lag.items():
            # A partition that appears later is read from its beginning.
            count = info.current_offset_position - self._first.get(name, 0)
            read[name.topic] = read.get(name.topic, 0) + count
            behind[name.topic] = behind.get(name.topic, 0) + info.offset_lag
        self._measure(read, _total(metrics, "records-produced-total"))
        rates, written_rate = self._rates or ({}, 0.0)
        dead_letter_topic = application.config.errors_dead_letter_queue_topic_name
        seconds = _total(metrics, "batch-seconds")
        message = self._message(state, lag)
        return RunSnapshot(
            application_id=str(application.config.application_id),
            state=state,
            batch=application.last_batch(),
            batch_seconds=seconds or None,
            topics=tuple(
                TopicProgress(topic, read[topic], rates.get(topic, 0.0), behind[topic])
                for topic in sorted(read)
            ),
            written_per_second=written_rate,
            dropped=int(
                _total(metrics, "dropped-records-total") + _total(metrics, "records-refused-total")
            ),
            dead_letters=int(
                sum(
                    count
                    for name, count in metrics.items()
                    if name.name == "records-produced-total"
                    and ("topic", dead_letter_topic) in name.tags
                )
            ),
            results=self._tail(),
            failures=tuple(application.first_failures()),
            is_starting=message.startswith(_STARTING),
            message=message,
        )

    def _message(self, state: str, lag: Mapping[TopicPartition, Any]) -> str:
        if self._stop.is_set():
            return "" if state in {"NOT_RUNNING", "ERROR"} else _STOPPING
        leader = self._application.leader()
        if leader is not None:
            return f"{leader} runs this application; this process stands by …"
        if lag or state in _OVER:
            return ""
        if state == "RUNNING":
            return "No topic to read yet …"
        return f"{_STARTING} … {time.monotonic() - self._began:.0f} s"

    def _measure(self, read: dict[str, int], written: float) -> None:
        if self._before is None:
            return
        then, read_before, written_before = self._before
        elapsed = time.monotonic() - then
        is_first = self._rates is None and any(read.values())  # a short run has no other
        if elapsed >= 1.0 or (is_first and elapsed > 0):
            self._rates = (
                {
                    topic: (count - read_before.get(topic, 0)) / elapsed
                    for topic, count in read.items()
                },
                (written - written_before) / elapsed,
            )
            self._before = (then + elapsed, read, written)


def _total(metrics: Mapping[MetricName, float], name: str) -> float:
    return sum(count for metric, count in metrics.items() if metric.name == name)


class Tail:
    """The last records of the topics an application writes, decoded as they were encoded.

    A thread of its own reads them for the time of a ``with`` block. A call returns the newest
    results, and never waits for a broker.
    """

    def __init__(
        self, config: StreamsConfig, serdes: Mapping[str, tuple[Serde[Any], Serde[Any]]]
    ) -> None:
        self._config = config
        self._serdes = serdes
        self._seen: dict[TopicPartition, int] = {}
        self._results: dict[str, deque[ChangedResult]] = {
            topic: deque(maxlen=_TAIL) for topic in serdes
        }
        self._newest: tuple[ChangedResult, ...] = ()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="tail", daemon=True)

    def __call__(self) -> tuple[ChangedResult, ...]:
        return self._newest

    def __enter__(self) -> Tail:
        if self._serdes:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._serdes and error is None:
            # Read the last results, but do not wait for a broker that is away.
            self._thread.join(_LAST_PASS_SECONDS)

    def _follow(self) -> None:
        try:
            log = open_log(self._config)
            try:
                ended = False
                while not ended:
                    ended = self._ended.is_set()  # then this is the last pass
                    self._refresh(log)
                    self._ended.wait(_TAIL_SECONDS)
            finally:
                log.close()
        except Exception:
            _log.debug("Cannot read the output topics to show them.", exc_info=True)

    def _refresh(self, log: TopicLog) -> None:
        with suppress(StreamsError):  # a topic may be missing until the application made it
            self._read_new(log)
        # In turns, so that the topic that is written last does not hide the others.
        turns = zip_longest(*self._results.values())
        newest = [result for turn in turns for result in turn if result is not None]
        self._newest = tuple(sorted(newest[:_TAIL], key=attrgetter("result")))

    def _read_new(self, log: TopicLog) -> None:
        for topic, (key, value) in self._serdes.items():
            names = [TopicPartition(topic, p) for p in range(log.partition_count(topic))]
            for name, end in log.end_offsets(names).items():
                start = max(self._seen.setdefault(name, end), end - _TAIL)
                self._seen[name] = end
                if start == end:
                    continue
                for records in log.read(name, start, end):
                    for record in records:
                        texts = (_text(record.key, key), _text(record.value, value))
                        self._results[topic].appendleft(ChangedResult(topic, *texts))


def _text(data: bytes | None, serde: Serde[Any]) -> str:
    if data is None:
        return "null"
    try:
        return escape_controls(str(serde.deserialize(data)))
    except Exception:  # undecodable bytes are shown in hexadecimal
        return data.hex(" ")


def _written(application: Application) -> dict[str, tuple[Serde[Any], Serde[Any]]]:
    """Return the topics that an application writes, with the serdes of keys and values."""
    lowered = application.topology.lowered(topology_defaults(application.config))
    return {
        node.topic: (
            serde_for_topic(node.key.need, node.topic, is_key=True),
            serde_for_topic(node.value.need, node.topic, is_key=False),
        )
        for node in lowered.graph.nodes.values()
        if isinstance(node, SinkNode) and isinstance(node.topic, str) and not node.internal
    }
