"""The tail shows the last written records beside a run, and nothing waits for it."""

from __future__ import annotations

import io
import os
import pty
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headrace import StreamsConfig
from headrace import foreground as foreground_module
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.errors import BrokerUnavailableError
from headrace.foreground import Tail, run_until_stopped
from headrace.progress_view import ChangedResult
from headrace.serdes import Serdes
from tests.unit.fake_application import FakeApplication, ended, sent
from tests.waiting import PATIENCE


@pytest.fixture
def terminal() -> Iterator[Console]:
    """A terminal with a reader."""
    outer, inner = pty.openpty()

    def read() -> None:
        with suppress(OSError):  # Linux raises this if no process has the terminal open
            while os.read(outer, 1 << 16):
                pass

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(inner, "w") as file:
        yield Console(file=file)
    reader.join()
    os.close(outer)


class WatchedLog:
    """A log that tells when all topics were looked at. The tail opens it, whatever its settings."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *topics: str) -> None:
        self.config = StreamsConfig(application_id="app", state_dir=folder)
        self._log = open_log(self.config)
        self._last = topics[-1]
        self.looks = threading.Semaphore(0)
        self.tail = Tail(self.config, dict.fromkeys(topics, (Serdes.string(), Serdes.long())))
        monkeypatch.setattr(foreground_module, "open_log", lambda _config: self)
        monkeypatch.setattr(foreground_module, "_LAST_PASS_SECONDS", PATIENCE)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def end_offsets(self, names: list[TopicPartition]) -> dict[TopicPartition, int]:
        ends = self._log.end_offsets(names)
        if names[0].topic == self._last:
            self.looks.release()
        return ends

    def append_numbers(self, topic: str, count: int) -> None:
        self.append([(topic, 0, 1, b"k", n.to_bytes(8, "big"), None) for n in range(count)])


def test_the_tail_shows_what_was_written_last_as_it_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = WatchedLog(tmp_path, monkeypatch, "out")
    log.create_topic("out", partitions=2)
    log.append([("out", 0, 1, b"old", (1).to_bytes(8, "big"), None)])

    with log.tail:
        assert log.looks.acquire(timeout=PATIENCE)
        log.append(
            [
                ("out", 0, 1, b"a", (1).to_bytes(8, "big"), None),
                ("out", 0, 1, b"b", None, None),
                ("out", 0, 1, None, b"\x01\x02", None),
            ]
        )

    assert log.tail() == (
        ChangedResult("out", "null", "01 02"),
        ChangedResult("out", "b", "null"),
        ChangedResult("out", "a", "1"),
    )


def test_the_tail_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = WatchedLog(tmp_path, monkeypatch, "out")
    log.create_topic("out")

    with log.tail:
        assert log.looks.acquire(timeout=PATIENCE)
        log.append_numbers("out", 100)

    assert [result.value for result in log.tail()] == [str(n) for n in range(99, 87, -1)]


def test_topics_share_the_tail_whichever_was_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = {"busy": 100, "calm": 2, "other": 100}
    log = WatchedLog(tmp_path, monkeypatch, *topics)
    for topic in topics:
        log.create_topic(topic)

    with log.tail:
        assert log.looks.acquire(timeout=PATIENCE)
        for topic, count in topics.items():
            log.append_numbers(topic, count)

    shown = [(result.result, int(result.value)) for result in log.tail()]
    assert shown == [
        *(("busy", n) for n in range(99, 94, -1)),
        *(("calm", n) for n in (1, 0)),
        *(("other", n) for n in range(99, 94, -1)),
    ]


def test_the_tail_reads_repeatedly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreground_module, "_TAIL_SECONDS", 0.001)
    log = WatchedLog(tmp_path, monkeypatch, "out")
    log.create_topic("out")

    with log.tail:
        assert log.looks.acquire(timeout=PATIENCE)
        log.append_numbers("out", 1)
        while not log.tail():
            assert log.looks.acquire(timeout=PATIENCE)


def test_the_tail_reads_at_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreground_module, "_TAIL_SECONDS", 10.0**6)
    log = WatchedLog(tmp_path, monkeypatch, "out")
    log.create_topic("out")

    with log.tail:
        assert log.looks.acquire(timeout=PATIENCE)

    assert log.looks.acquire(blocking=False)  # the last one
    assert not log.looks.acquire(blocking=False)


def test_a_topic_that_is_not_there_yet_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreground_module, "_TAIL_SECONDS", 0.001)
    log = WatchedLog(tmp_path, monkeypatch, "out")

    with log.tail:
        log.create_topic("out")
        assert log.looks.acquire(timeout=PATIENCE)

    assert log.tail() == ()


def test_a_failure_to_look_is_none_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Console
) -> None:
    asked = threading.Event()

    def fail(_config: StreamsConfig) -> None:
        asked.set()
        raise ValueError("broken")

    monkeypatch.setattr(foreground_module, "open_log", fail)

    code = run_until_stopped(FakeApplication(tmp_path, lambda: asked.wait(PATIENCE)), terminal)

    assert code == 0


def test_on_a_terminal_the_results_are_shown_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    log = WatchedLog(tmp_path, monkeypatch, "out")
    log.create_topic("out")

    def written() -> bool:
        assert log.looks.acquire(timeout=PATIENCE)
        log.append([("out", 0, 1, b"k", (7).to_bytes(8, "big"), None)])
        return True

    run_until_stopped(
        FakeApplication(tmp_path, written),
        Console(file=screen, force_terminal=True, color_system=None),
    )

    assert [line.split() for line in screen.getvalue().splitlines()][-3:-1] == [
        ["result", "key", "value"],
        ["out", "k", "7"],
    ]


class SilentLog:
    """A log whose broker gives no answer before a test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked_by: list[str] = []
        self.asked, self.released, self.closed = (threading.Event() for _ in range(3))
        monkeypatch.setattr(foreground_module, "open_log", lambda _config: self)
        monkeypatch.setattr(foreground_module, "_LAST_PASS_SECONDS", 0.001)

    def partition_count(self, _topic: str) -> int:
        self.asked_by.append(threading.current_thread().name)
        self.asked.set()
        self.released.wait(PATIENCE)
        raise BrokerUnavailableError("No answer.")

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("last", [ended, sent(signal.SIGINT)], ids=["ended", "interrupted"])
def test_neither_the_view_nor_the_end_waits_for_a_broker_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Console, last: Callable[[], bool]
) -> None:
    log = SilentLog(monkeypatch)

    code = run_until_stopped(
        FakeApplication(tmp_path, lambda: not log.asked.wait(PATIENCE), last), terminal
    )

    assert terminal.is_terminal
    assert code == 0
    assert log.asked_by == ["tail"]
    assert not log.closed.is_set()
    log.released.set()
    assert log.closed.wait(PATIENCE)


def test_a_broker_is_not_asked_for_results_before_the_application_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Console
) -> None:
    log = SilentLog(monkeypatch)
    application = FakeApplication(tmp_path)
    application.start_error = BrokerUnavailableError("No answer.")

    with pytest.raises(BrokerUnavailableError):
        run_until_stopped(application, terminal)

    assert log.asked_by == []


def test_the_tail_shows_no_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = WatchedLog(tmp_path, monkeypatch, "out")
    log.create_topic("out")

    with log.tail:
        assert log.looks.acquire(timeout=PATIENCE)
        log.append([("out", 0, 1, b"\x1b[2J\xe2\x80\xae\n", (1).to_bytes(8, "big"), None)])

    assert log.tail() == (ChangedResult("out", "\\u001b[2J\\u202e\\n", "1"),)
