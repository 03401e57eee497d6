"""Runs of an application whose query is not Spark's: a test ends it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import StreamsBuilder, StreamsConfig
from headrace.brokers import open_log
from headrace.spark.runner import Run


class FakeQuery:
    """A streaming query that a test ends."""

    def __init__(self, trigger: object) -> None:
        self.trigger = trigger
        self.isActive = True
        self.failure: Exception | None = None
        self.stops = 0

    def exception(self) -> Exception | None:
        return self.failure

    def fail(self, failure: Exception) -> None:
        self.failure, self.isActive = failure, False

    def stop(self) -> None:
        self.stops += 1
        self.isActive = False


def faked_queries(monkeypatch: pytest.MonkeyPatch, *, is_active: bool = True) -> list[FakeQuery]:
    """Make runs start fakes; return those that were started.

    Args:
        monkeypatch: Restores what starts queries.
        is_active: Whether they run until a test ends them; else they have ended at once.
    """
    started: list[FakeQuery] = []

    def start(_session: Any, _shipped: Any, _checkpoint: Path, trigger: object) -> FakeQuery:
        started.append(FakeQuery(trigger))
        started[-1].isActive = is_active
        return started[-1]

    session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    monkeypatch.setattr("headrace.spark.runner.start_query", start)
    monkeypatch.setattr("headrace.spark.runner.open_session", lambda *_: session)
    monkeypatch.setattr("headrace.spark.runner.restore_local_folders", lambda _: None)
    monkeypatch.setattr("headrace.spark.session._java_logs", [])  # of other tests here
    return started


def run_of(
    folder: Path,
    *,
    partitions: int | None = 3,
    closing: threading.Event | None = None,
    **settings: Any,
) -> Run:
    config = StreamsConfig(application_id="app", state_dir=folder, **settings)
    log = open_log(config)
    if partitions is not None and "in" not in log.list_topics():
        log.create_topic("in", partitions=partitions)
    log.close()
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    return Run(builder.build(), config, closing=closing)


def started(folder: Path, **settings: Any) -> Run:
    run = run_of(folder, **settings)
    run.start()
    return run
