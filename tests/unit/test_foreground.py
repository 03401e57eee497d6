"""Running in the foreground: signals, exit codes, and the progress view."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from headrace import StreamsError
from headrace import foreground as foreground_module
from headrace.brokers.log import TopicPartition
from headrace.foreground import Snapshots, log_lines, run_in_foreground, run_until_stopped
from headrace.metrics import MetricName
from headrace.progress_view import RunSnapshot, TakeSnapshot, TopicProgress
from tests.module_time import patch_time
from tests.unit.fake_application import FakeApplication, Info, ended, failed, sent, still_running
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> list[RunSnapshot]:
    """The snapshots of the progress view: one at the beginning and one at the end."""
    snapshots: list[RunSnapshot] = []

    @contextmanager
    def show_progress(
        snapshot: TakeSnapshot,
        _write: Callable[[str], None],
        _terminal: Console | None,
        *,
        every: timedelta,
    ) -> Iterator[None]:
        assert every == timedelta(minutes=3)
        snapshots.append(snapshot())
        try:
            yield
        finally:
            snapshots.append(snapshot())

    monkeypatch.setattr(foreground_module, "show_progress", show_progress)
    return snapshots


def test_an_application_that_ends_is_well(tmp_path: Path, shown: list[RunSnapshot]) -> None:
    application = FakeApplication(tmp_path, still_running, still_running, ended)

    code = run_in_foreground(application)

    assert code == 0
    assert application.calls[0] == "start"
    assert [snapshot.application_id for snapshot in shown] == ["app", "app"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_closes_the_application(tmp_path: Path, number: signal.Signals) -> None:
    application = FakeApplication(tmp_path, still_running, sent(number))

    code = run_in_foreground(application)

    assert code == 0
    assert application.calls[:2] == ["start", "close"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_batch_that_a_signal_left_unfinished_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    application = FakeApplication(tmp_path, still_running, sent(number))
    application.finishes = False

    assert run_in_foreground(application) == 1
    assert capsys.readouterr().err == ""


def test_a_second_signal_interrupts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = FakeApplication(tmp_path, sent(signal.SIGINT), sent(signal.SIGTERM))
    monkeypatch.setattr(application, "close", lambda: None)

    assert run_in_foreground(application) == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_closes_an_application_that_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    application = FakeApplication(tmp_path)

    def slow_start() -> None:
        os.kill(os.getpid(), number)
        assert application.closed.wait(PATIENCE)

    monkeypatch.setattr(application, "start", slow_start)

    assert run_in_foreground(application) == 0
    assert set(application.calls) == {"close"}


def test_a_signal_that_comes_before_the_start_is_an_orderly_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    application = FakeApplication(tmp_path)

    def late_start() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert application.closed.wait(PATIENCE)
        raise StreamsError("It was started before.")

    monkeypatch.setattr(application, "start", late_start)

    assert run_in_foreground(application) == 0
    assert capsys.readouterr().err == ""


def test_a_failure_after_a_signal_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    application = FakeApplication(tmp_path, sent(signal.SIGINT), failed)
    monkeypatch.setattr(application, "close", failed)

    assert run_in_foreground(application) == 1
    assert capsys.readouterr().err == "The broker is gone.\n"


def test_the_signals_are_given_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    run_in_foreground(FakeApplication(tmp_path, failed))

    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_application_runs_in_another_thread_without_signals(tmp_path: Path) -> None:
    codes: list[int] = []
    application = FakeApplication(tmp_path, ended)

    thread = threading.Thread(target=lambda: codes.append(run_in_foreground(application)))
    thread.start()
    thread.join()

    assert codes == [0]


def test_a_failure_is_written_and_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_in_foreground(FakeApplication(tmp_path, still_running, failed))

    assert code == 1
    assert capsys.readouterr().err == "The broker is gone.\n"


def test_a_note_of_a_failure_is_written_below_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def failed_with_note() -> bool:
        error = StreamsError("Step 'x' failed.")
        error.add_note("The step was made at app.py:31.")
        raise error

    run_in_foreground(FakeApplication(tmp_path, failed_with_note))

    assert capsys.readouterr().err == "Step 'x' failed.\nThe step was made at app.py:31.\n"


def test_neither_a_failure_nor_a_log_line_passes_on_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_logging: logging.Logger
) -> None:
    def failed_on_hostile_data() -> bool:
        no_logging.warning("A record has \x1b[2J.\nMore of it.")
        raise StreamsError("Step 'x' failed: \x9bJ\nThe cause.")

    run_in_foreground(FakeApplication(tmp_path, failed_on_hostile_data))

    written = capsys.readouterr()
    assert written.out.endswith(" WARNING A record has \\u001b[2J.\n  More of it.\n")
    assert written.err == "Step 'x' failed: \\u009bJ\nThe cause.\n"


def test_an_application_that_cannot_start_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    application = FakeApplication(tmp_path)
    application.start_error = StreamsError("Java is missing.")

    assert run_in_foreground(application) == 1
    assert capsys.readouterr().err == "Java is missing.\n"
    assert application.calls == ["start"]


def test_a_caller_may_deal_with_the_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StreamsError, match="The broker is gone"):
        run_until_stopped(FakeApplication(tmp_path, still_running, failed), None)

    assert capsys.readouterr().err == ""


@pytest.fixture
def no_logging(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Our logger as it is in a program that has set up no logging; pytest has."""
    logger = logging.getLogger("headrace")
    monkeypatch.setattr(logger, "hasHandlers", lambda: False)
    return logger


def test_a_program_without_logging_writes_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_logging: logging.Logger
) -> None:
    def warned() -> bool:
        assert application.closed.wait(PATIENCE)
        no_logging.getChild("spark").warning("It is late.")
        no_logging.debug("Nobody asked.")
        return True

    application = FakeApplication(tmp_path, sent(signal.SIGTERM), warned)
    run_in_foreground(application)

    time_of_day = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert [re.sub(time_of_day, "T", line) for line in capsys.readouterr().out.splitlines()] == [
        "T INFO Stopping after the running batch; once more stops at once.",
        "T WARNING It is late.",
    ]
    assert no_logging.handlers == []
    assert no_logging.level == logging.NOTSET


def test_a_terminal_gets_warnings_beside_the_view(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_logging: logging.Logger,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    def logged() -> bool:
        no_logging.warning("It is late.")
        no_logging.info("It is well.")
        return True

    run_in_foreground(FakeApplication(tmp_path, logged))

    assert capsys.readouterr().out.endswith(" WARNING It is late.\n")


def test_a_program_that_has_set_up_logging_gets_the_lines_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace")

    run_in_foreground(FakeApplication(tmp_path, sent(signal.SIGTERM)))

    assert "Stopping after the running batch" in caplog.text
    assert capsys.readouterr().out == ""


def test_log_lines_to_a_closed_pipe_are_no_failure(
    monkeypatch: pytest.MonkeyPatch, no_logging: logging.Logger
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr("sys.stdout", gone)
        with log_lines(logging.INFO):
            no_logging.info("Is anybody there?")
        monkeypatch.undo()
        with suppress(BrokenPipeError):
            gone.close()


def metric(name: str, **tags: str) -> MetricName:
    return MetricName("group", name, tuple(tags.items()))


def snapshots(application: FakeApplication) -> Snapshots:
    return Snapshots(application, tuple, threading.Event())


def test_the_view_first_shows_that_the_application_starts(tmp_path: Path) -> None:
    application = FakeApplication(tmp_path)
    application.starting = True

    snapshot = snapshots(application).take()

    assert re.fullmatch(r"Starting Spark … \d+ s", snapshot.message)
    assert snapshot.is_starting
    assert (snapshot.batch, snapshot.batch_seconds, snapshot.topics) == (None, None, ())
    assert snapshot.state == "REBALANCING"


def test_the_view_shows_that_there_is_nothing_to_read(tmp_path: Path) -> None:
    snapshot = snapshots(FakeApplication(tmp_path)).take()

    assert (snapshot.state, snapshot.message) == ("RUNNING", "No topic to read yet …")
    assert not snapshot.is_starting


def test_the_view_shows_that_the_application_stops(tmp_path: Path) -> None:
    application = FakeApplication(tmp_path)
    stop = threading.Event()
    taking = Snapshots(application, tuple, stop)

    stop.set()
    stopping = taking.take().message
    application.closed.set()

    assert stopping == "Stopping after the running batch; once more stops at once."
    assert taking.take().message == ""


def test_the_view_of_an_application_that_has_ended_waits_for_nothing(tmp_path: Path) -> None:
    application = FakeApplication(tmp_path)
    application.closed.set()

    assert snapshots(application).take().message == ""


def test_a_snapshot_counts_from_the_start_of_the_run(tmp_path: Path) -> None:
    application = FakeApplication(tmp_path)
    application.offsets = {
        TopicPartition("b", 0): Info(100, 50),
        TopicPartition("a", 0): Info(7, 0),
        TopicPartition("a", 1): Info(3, 2),
    }
    taking = snapshots(application)
    first = taking.take()

    application.offsets[TopicPartition("a", 0)] = Info(10, 1)
    application.offsets[TopicPartition("a", 1)] = Info(4, 1)
    second = taking.take()

    assert [(each.topic, each.records, each.lag) for each in first.topics] == [
        ("a", 0, 2),
        ("b", 0, 50),
    ]
    assert [(each.topic, each.records, each.lag) for each in second.topics] == [
        ("a", 4, 2),
        ("b", 0, 50),
    ]
    assert first.message == ""


def test_a_topic_that_appears_while_the_application_runs_counts_from_its_beginning(
    tmp_path: Path,
) -> None:
    application = FakeApplication(tmp_path)
    taking = snapshots(application)
    taking.look()

    application.offsets = {TopicPartition("in-1", 0): Info(40, 2)}

    assert [(each.topic, each.records) for each in taking.take().topics] == [("in-1", 40)]


def test_a_snapshot_has_the_first_failures(tmp_path: Path) -> None:
    application = FakeApplication(tmp_path)
    application.failures = ["Step 'x' skipped a record."]

    assert snapshots(application).take().failures == ("Step 'x' skipped a record.",)


def test_a_snapshot_shows_what_was_counted(tmp_path: Path) -> None:
    application = FakeApplication(tmp_path)
    application.batch = 812
    application.counted = {
        metric("batches-total"): 3,
        metric("batch-seconds"): 0.25,
        metric("dropped-records-total", node="one"): 2,
        metric("dropped-records-total", node="two"): 1,
        metric("records-refused-total", topic="out"): 2,
        metric("records-produced-total", topic="out"): 9,
        metric("records-produced-total", topic="letters"): 4,
    }

    snapshot = snapshots(application).take()

    assert (snapshot.batch, snapshot.batch_seconds) == (812, 0.25)
    assert (snapshot.dropped, snapshot.dead_letters) == (5, 4)


def test_rates_are_since_the_second_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    patch_time(monkeypatch, "headrace.foreground", monotonic=lambda: now)
    application = FakeApplication(tmp_path)
    name, produced = TopicPartition("in", 0), metric("records-produced-total", topic="out")

    def at(time: float, offset: int, written: int) -> RunSnapshot:
        nonlocal now
        now = time
        application.offsets, application.counted = {name: Info(offset, 0)}, {produced: written}
        return taking.take()

    taking = snapshots(application)
    at(100.0, 0, 0)
    first = at(100.5, 50, 25)
    too_early = at(101.0, 90, 45)
    after_two_seconds = at(102.5, 450, 225)
    still = at(103.0, 450, 225)

    assert (first.read_per_second, first.written_per_second) == (100.0, 50.0)
    assert too_early.read_per_second == 100.0
    assert after_two_seconds.topics == (TopicProgress("in", 450, 200.0, 0),)
    assert after_two_seconds.written_per_second == 100.0
    assert still.written_per_second == 100.0


def test_a_run_that_is_shorter_than_the_time_between_summaries_counts_all_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: list[RunSnapshot]
) -> None:
    now = 100.0
    patch_time(monkeypatch, "headrace.foreground", monotonic=lambda: now)
    application = FakeApplication(tmp_path)
    application.starting = True
    name, produced = TopicPartition("in", 0), metric("records-produced-total", topic="out")

    def planned() -> bool:
        application.starting = False
        application.offsets = {name: Info(1_000, 150_000)}
        return False

    def written() -> bool:
        nonlocal now
        now = 103.0
        application.offsets = {name: Info(151_000, 0)}
        application.counted = {produced: 300}
        return False

    application.steps = [planned, written, ended]
    run_in_foreground(application)

    assert shown[-1].topics == (TopicProgress("in", 150_000, 50_000.0, 0),)
    assert shown[-1].written_per_second == 100.0


def test_a_standby_shows_whom_it_stands_by_for(tmp_path: Path) -> None:
    application = FakeApplication(tmp_path)
    application.led_by = "Process 7 on elsewhere"
    taking = snapshots(application)

    assert taking.take().message == (
        "Process 7 on elsewhere runs this application; this process stands by …"
    )
