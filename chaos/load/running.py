"""One run: the application works at a steady load, with restarts, and is measured."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, cycle, takewhile
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.process_tree import own_cpu_seconds
from benchmarks.topics import Topics
from chaos.checks import Verdict
from chaos.ledger import current_commit
from chaos.load.checking import ECHO, TOTALS, check
from chaos.load.feeder import TOPIC, Fed
from chaos.load.results import LoadEntry, RestartEntry, Sample, growth, quarters
from chaos.supervisor import ROOT, Supervisor
from tests.kafka_broker import LASTING, start_broker

APPLICATION = "load"
ZERO_SECONDS = 3.0
"""The lag counts as zero when no more waits than was fed in this time.

A batch takes about a second; a record waits for the batch before its own, and for its own.
"""

_STALLED_SECONDS = 180.0
_LOOK_SECONDS = 0.5
_SAMPLE_SECONDS = 5.0
_SHOW_SECONDS = 30.0
_WARM_SHARE = 0.4
"""The part of the backlog with which the application only warms up."""

_LEAST_FED = 0.98
"""How much of what was due must have been fed."""


@dataclass(frozen=True)
class Plan:
    """The settings of a run."""

    minutes: float
    every: float
    """Seconds from one restart to the next."""
    backlog: int
    """How many records the maximum is measured with."""
    share: float
    """How much of its maximum speed the application is fed."""
    seed: int

    @property
    def seconds(self) -> float:
        """Return how long the load lasts."""
        return 60 * self.minutes

    def restarts(self) -> Iterator[tuple[float, str]]:
        """Yield when to end the application and how; the last time has half the time at least."""
        last = self.seconds - self.every / 2
        times = takewhile(lambda second: second <= last, count(self.every, self.every))
        return zip(times, cycle(("clean stop", "kill -9")), strict=False)


class Restart:
    """The time from the end of the application until its lag is zero again.

    Args:
        kind: How it ends.
        second: When, counted from the beginning of the load.
        driver: The process that ends.
        starts: How often it was started until then.
    """

    def __init__(self, kind: str, second: float, driver: int, starts: int) -> None:
        self.kind = kind
        self.second = second
        self.driver = driver
        self._starts = starts
        self._resumed_at: int | None = None

    def is_over(self, starts: int, committed: int, lag_seconds: float) -> bool:
        """Return whether the next start has made progress, and the lag is zero."""
        if starts == self._starts:
            return False
        if self._resumed_at is None:
            self._resumed_at = committed
        return committed > self._resumed_at and lag_seconds <= ZERO_SECONDS


class Load:
    """A broker, a feeder and the application; a ``with`` block ends them all.

    Args:
        plan: The settings of the run.
        folder: Keeps everything.
        show: Takes progress messages for a person.
    """

    def __init__(self, plan: Plan, folder: Path, show: Callable[[str], object]) -> None:
        self._plan = plan
        self._folder = folder
        self._show = show
        self._maximum = self._rate = self._cpu_before = 0.0
        self._lags: list[float] = []
        self._samples: list[Sample] = []
        self._restarts: list[RestartEntry] = []
        self._pending: Restart | None = None
        self._ends = 0
        self._problems: list[str] = []

    def __enter__(self) -> Load:
        with ExitStack() as on_failure:
            broker = start_broker(self._folder / "kafka", java_options=LASTING)
            on_failure.enter_context(broker)
            self._topics = Topics(broker.address)
            self._topics.create(TOPIC, ECHO, TOTALS)
            self._feeder = on_failure.enter_context(self._start_feeder())
            on_failure.callback(self._feeder.kill)
            settings = {
                "application.id": APPLICATION,
                "bootstrap.servers": broker.address,
                "num.stream.threads": "2",
            }
            self._application = Supervisor(self._folder, "running_aggregate", settings)
            self._running = on_failure.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def measure_maximum(self) -> None:
        """Start the application on a backlog, and see how fast it is once it is warm."""
        self._ask_feeder(f"burst {self._plan.backlog}")
        assert self._feeder.stdout is not None, "a pipe"
        self._feeder.stdout.readline()
        self._application.start()
        self._running.callback(self._application.kill)
        self._maximum = speed(self._progress_to(self._plan.backlog))
        self._rate = self._plan.share * self._maximum
        self._show(f"At most {self._maximum:,.0f} records/s; feeding {self._rate:,.0f}.")

    def hold(self) -> None:
        """Feed at the rate, end the application as planned, and take samples.

        The last restart has as much time as the others, so that it may take a little longer.
        """
        self._cpu_before = own_cpu_seconds(self._feeder.pid)
        self._ask_feeder(f"rate {self._rate}")
        restarts = iter([*self._plan.restarts(), (math.inf, "")])
        due, kind = next(restarts)
        began = time.monotonic()
        sampled = printed = 0.0
        while (second := time.monotonic() - began) < self._held_until():
            lag = self._look(second)
            if self._pending is None and second >= due:
                self._end(kind, second)
                due, kind = next(restarts)
            if self._pending is None and second >= sampled + _SAMPLE_SECONDS:
                sampled = second
                self._take_sample(second)
            if second >= printed + _SHOW_SECONDS:
                printed = second
                self._show(self._line(second, lag))
            time.sleep(_LOOK_SECONDS)
        if self._pending is not None:
            self._problems.append(f"The lag was never zero after the {self._pending.kind}.")

    def _held_until(self) -> float:
        pending = 0.0 if self._pending is None else self._pending.second + self._plan.every
        return max(self._plan.seconds, pending)

    def finish(self) -> LoadEntry:
        """Wait until everything is processed, end the application in order, and judge it all."""
        seconds = self._plan.seconds
        feeder_cpu = (own_cpu_seconds(self._feeder.pid) - self._cpu_before) / seconds
        fed = self._end_feeding()
        records = sum(each.count for each in fed.values())
        self._show(f"Fed {records:,} records; what came of them is read now.")
        self._progress_to(records)
        if not self._application.close():
            self._problems.append(f"A disorderly end: {self._application.last_output()}")
        found = check(self._topics.address, APPLICATION, fed, self._show)
        self._judge(records, found)
        middles = list(quarters(self._samples, seconds))
        return LoadEntry(
            commit=current_commit(),
            seed=self._plan.seed,
            minutes=self._plan.minutes,
            maximum=round(self._maximum),
            rate=round(self._rate),
            records=records,
            lag_seconds=round(median(self._lags), 2),
            restarts=self._restarts,
            megabytes=[megabytes for megabytes, _ in middles],
            files=[files for _, files in middles],
            feeder_cpu=round(feeder_cpu, 2),
            verdict=found.counts(),
            problems=self._problems,
        )

    def _judge(self, records: int, found: Verdict) -> None:
        due = self._plan.backlog + self._rate * self._plan.seconds
        ends = sum(self._topics.end_offsets(TOPIC))
        if records < _LEAST_FED * due:
            self._problems.append(f"{records:,} records were fed where {due:,.0f} were due.")
        if ends != records:
            self._problems.append(f"{TOPIC!r} has {ends:,} records, not {records:,}.")
        if self._application.starts - 1 != self._ends:
            codes = list(self._application.exits.values())
            self._problems.append(f"It ended by itself; all ends in order: {codes}.")
        self._problems += growth(self._samples, self._plan.seconds)
        self._problems += found.examples

    def _look(self, second: float) -> float:
        """Return the lag in seconds of feeding; notes it, or the end of a restart."""
        if self._feeder.poll() is not None:
            msg = "The feeder ended by itself, see above."
            raise RuntimeError(msg)
        starts, committed = self._application.starts, self._committed()
        lag = (sum(self._topics.end_offsets(TOPIC)) - committed) / self._rate
        if self._pending is None:
            self._lags.append(lag)
        elif self._pending.is_over(starts, committed, lag):
            self._note_end(self._pending, second)
            self._pending = None
        return lag

    def _note_end(self, restart: Restart, second: float) -> None:
        kind, seconds = restart.kind, round(second - restart.second, 1)
        self._show(f"{second:6.0f} s  lag zero {seconds} s after the {kind}")
        self._restarts.append(RestartEntry(kind, round(restart.second), seconds))
        if seconds > self._plan.every:
            self._problems.append(f"The lag was zero only {seconds} s after the {kind}.")
        code = self._application.exits[restart.driver]
        if kind == "clean stop" and code != 0:
            self._problems.append(f"The {kind} ended with {code}.")

    def _end(self, kind: str, second: float) -> None:
        """End the application, which its supervisor starts again."""
        self._show(f"{second:6.0f} s  {kind}")
        self._ends += 1
        session = self._application.session
        self._pending = Restart(kind, second, session.driver, self._application.starts)
        if kind == "kill -9":
            session.kill()
        else:
            os.kill(session.driver, signal.SIGTERM)

    def _take_sample(self, second: float) -> None:
        application = self._application
        self._samples.append(Sample(second, application.starts, application.session.usage()))

    def _line(self, second: float, lag: float) -> str:
        usage = self._samples[-1].usage
        return (
            f"{second:6.0f} s  lag {lag:5.1f} s of feeding  {usage.bytes / 1e6:6,.0f} MB"
            f"  {usage.files:,} files  start {self._application.starts}"
        )

    def _progress_to(self, records: int) -> list[tuple[float, int]]:
        """Wait until ``records`` are committed; return how many were, second by second.

        Raises:
            TimeoutError: Nothing moves.
        """
        progress = [(time.monotonic(), self._committed())]
        while progress[-1][1] < records:
            time.sleep(_LOOK_SECONDS)
            now, committed = time.monotonic(), self._committed()
            if committed > progress[-1][1]:
                progress.append((now, committed))
            elif now - progress[-1][0] > _STALLED_SECONDS:
                msg = (
                    f"{committed:,} of {records:,} records are processed, and no more since "
                    f"{_STALLED_SECONDS:g} s: {self._application.last_output()}"
                )
                raise TimeoutError(msg)
        return progress

    def _committed(self) -> int:
        return self._topics.committed(APPLICATION, TOPIC)

    def _start_feeder(self) -> subprocess.Popen[str]:
        arguments = [self._topics.address, str(self._plan.seed), str(self._fed)]
        return subprocess.Popen(
            [sys.executable, "-m", "chaos.load.feeder", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def _ask_feeder(self, line: str) -> None:
        assert self._feeder.stdin is not None, "a pipe"
        self._feeder.stdin.write(f"{line}\n")
        self._feeder.stdin.flush()

    def _end_feeding(self) -> dict[str, Fed]:
        assert self._feeder.stdin is not None, "a pipe"
        self._feeder.stdin.close()
        self._feeder.wait(_STALLED_SECONDS)
        return msgspec.json.decode(self._fed.read_bytes(), type=dict[str, Fed])

    @property
    def _fed(self) -> Path:
        return self._folder / "fed.json"


def speed(progress: Sequence[tuple[float, int]]) -> float:
    """Return the records a second after warming up, given how far it was after each commit.

    Raises:
        ValueError: There was no commit after that.
    """
    last_second, last = progress[-1]
    second, committed = next(each for each in progress if each[1] >= _WARM_SHARE * last)
    if committed == last:
        msg = f"The backlog of {last:,} records went in one batch. Give a larger `--backlog`."
        raise ValueError(msg)
    return (last - committed) / (last_second - second)
