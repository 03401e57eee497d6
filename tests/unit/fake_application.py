"""A fake application for the foreground, whose end a test decides."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from headrace import StreamsBuilder, StreamsConfig, StreamsError
from headrace.brokers.log import TopicPartition
from headrace.metrics import MetricName
from tests.waiting import PATIENCE


class States(Enum):
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    NOT_RUNNING = "NOT_RUNNING"


class Info(NamedTuple):
    current_offset_position: int
    offset_lag: int


class FakeApplication:
    """An application whose `await_termination` a test decides about."""

    def __init__(self, folder: Path, *steps: Callable[[], bool]) -> None:
        builder = StreamsBuilder()
        builder.stream("in", key=str, value=int).to("out")
        self.topology = builder.build()
        self.config = StreamsConfig(
            application_id="app",
            state_dir=folder,
            errors_dead_letter_queue_topic_name="letters",
            log_summary_interval="3m",
        )
        self.steps = list(steps)
        self.calls: list[str] = []
        self.start_error: StreamsError | None = None
        self.offsets: dict[TopicPartition, Info] = {}
        self.counted: dict[MetricName, float] = {}
        self.failures: list[str] = []
        self.batch: int | None = None
        self.led_by: str | None = None
        self.closed = threading.Event()
        self.finishes = True
        self.starting = False

    def start(self) -> None:
        self.calls.append("start")
        if self.start_error is not None:
            raise self.start_error

    def close(self, timeout: Any = None, /) -> bool:
        self.calls.append("close")
        self.closed.set()
        return self.finishes

    def await_termination(self, timeout: Any = None, /) -> bool:
        return self.steps.pop(0)() if self.steps else self.closed.wait(PATIENCE)

    def state(self) -> States:
        if self.closed.is_set():
            return States.NOT_RUNNING
        return States.REBALANCING if self.starting else States.RUNNING

    def metrics(self) -> dict[MetricName, float]:
        return self.counted

    def first_failures(self) -> list[str]:
        return self.failures

    def last_batch(self) -> int | None:
        return self.batch

    def lag(self) -> dict[TopicPartition, Info]:
        return self.offsets

    def leader(self) -> str | None:
        return self.led_by


def ended() -> bool:
    return True


def still_running() -> bool:
    return False


def sent(number: signal.Signals) -> Callable[[], bool]:
    def send() -> bool:
        os.kill(os.getpid(), number)
        return False

    return send


def failed() -> bool:
    raise StreamsError("The broker is gone.")
