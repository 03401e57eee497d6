"""Applications on a run without Spark, whose fate a test decides."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace import (
    KafkaStreams,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    Topology,
)
from headrace.app import State
from headrace.metrics import MetricName
from tests.waiting import PATIENCE


def program() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    return builder


class FakeRun:
    """A run without Spark: a test says what becomes of it."""

    made: list[FakeRun]
    start_error: BaseException | None
    others_lead: bool
    starts_slowly: bool

    def __init__(
        self, topology: Topology, config: StreamsConfig, *, paused: bool, closing: threading.Event
    ) -> None:
        self.topology, self.config, self.closing = topology, config, closing
        self.began_paused = paused
        self.calls: queue.Queue[str] = queue.Queue()
        self.active = True
        self.takeover_errors: list[StreamsError] = []
        self.led = False
        self.lost_leadership = False
        self.planned = True
        self.failure: StreamsError | None = None
        self.failing_restarts: list[StreamsError] = []
        self.restart_errors: list[StreamsError] = []
        self.finishes = True
        self.fails_when_stopped: StreamsError | None = None
        self.batch = -1
        self.failures: list[str] = []
        self.looked_at = 0.0
        self.stopped_with: list[float] = []
        self.released = self.ended_for_all = False
        self.paused: list[bool] = []
        self.made.append(self)

    def start(self) -> bool:
        if self.start_error is not None:
            raise self.start_error
        if self.starts_slowly:
            self.closing.wait()
            return False
        return not self.others_lead

    def take_over(self, seconds: float) -> bool:
        if self.takeover_errors:
            raise self.takeover_errors.pop(0)
        return not self.others_lead

    def leader(self) -> str:
        return "Process 7 on elsewhere"

    def leads(self) -> bool:
        return self.led

    def has_lost_leadership(self) -> bool:
        return self.lost_leadership

    def is_active(self) -> bool:
        return self.active

    def error(self) -> StreamsError | None:
        return self.failure

    def has_planned(self) -> bool:
        return self.planned

    def last_look(self) -> float:
        return self.looked_at

    def batch_number(self) -> int:
        return self.batch

    def stop(self, timeout: float) -> bool:
        self.stopped_with.append(timeout)
        if self.active:
            self.failure = self.fails_when_stopped
        self.active = False
        return self.finishes and self.failure is None

    def restart(self) -> None:
        self.calls.put("restart")
        if self.restart_errors:
            raise self.restart_errors.pop(0)
        if self.failing_restarts:
            self.failure = self.failing_restarts.pop(0)
        else:
            self.failure, self.active = None, True

    def fail(self, error: StreamsError) -> None:
        self.failure, self.active = error, False

    def end(self) -> None:
        self.active = False

    def pause(self, *, paused: bool) -> None:
        self.paused.append(paused)

    def positions(self) -> Iterator[tuple[str, int, int, int]]:
        yield "in", 0, 3, 10
        yield "in", 1, 5, 4

    def metrics(self) -> dict[MetricName, float]:
        return {MetricName("stream-metrics", "batches-total"): 2.0}

    def first_failures(self) -> list[str]:
        return self.failures

    def release(self, *, whole_application: bool = False) -> None:
        self.released, self.ended_for_all = True, whole_application


class Running:
    """An application on a fake run, with the changes of its state."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("application_id", "app")
        self.app = KafkaStreams(program().build(), **settings)
        self.changes: list[tuple[State, State]] = []
        self._seen: queue.Queue[State] = queue.Queue()
        self._ended = False
        self.app.set_state_listener(self._listen)

    def _listen(self, new: State, old: State) -> None:
        self.changes.append((old, new))
        self._seen.put(new)

    @property
    def run(self) -> FakeRun:
        return FakeRun.made[-1]

    def started(self) -> Running:
        self.app.start()
        self.wait_for(State.RUNNING)
        return self

    def wait_for(self, state: State) -> None:
        try:
            while self._seen.get(timeout=PATIENCE) is not state:
                pass
        except queue.Empty:
            pytest.fail(f"waited {PATIENCE:g} s in vain for {state}; found {self.changes}")
        self._ended = state.has_ended()

    def states(self) -> list[State]:
        """Return the states that the listener saw, all of them if the application has ended."""
        if self.app.state().has_ended() and not self._ended:
            self.wait_for(self.app.state())
        return [new for _, new in self.changes]


@contextmanager
def faked(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeRun]]:
    """Run applications on fakes, which wait little."""
    monkeypatch.setattr("headrace.spark.runner.Run", FakeRun)
    monkeypatch.setattr("headrace.app._POLL_SECONDS", 0.001)
    monkeypatch.setattr("headrace.app._FIRST_BACK_OFF", 0.001)
    FakeRun.made, FakeRun.start_error = [], None
    FakeRun.others_lead = FakeRun.starts_slowly = False
    yield FakeRun
    for run in FakeRun.made:
        run.end()  # lets a supervisor go that a failed test left behind
