"""The driver's loggers get, through a pipe, the lines that functions print and log in a worker."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.spark.processes.followed_output import FollowedOutput
from headrace.spark.processes.worker_output import (
    LINE_CHARACTERS,
    PRINTED,
    PrintedLines,
    WorkerOutput,
    line_of,
)
from tests.waiting import await_that


@pytest.fixture
def followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[FollowedOutput]:
    caplog.set_level(logging.INFO)
    followed = FollowedOutput(tmp_path)
    yield followed
    followed.close()


@pytest.fixture
def output(followed: FollowedOutput, tmp_path: Path) -> Iterator[WorkerOutput]:
    """A worker of that run; as it is this process, its handlers are taken away at once."""
    before, out, level = logging.root.handlers[:], sys.stdout, logging.root.level
    output = WorkerOutput()
    output.lead_to(str(tmp_path))
    logging.root.handlers[:], sys.stdout = before, out
    logging.root.setLevel(level)
    yield output
    output.close()


def record(message: str, name: str = "shop.orders", level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord(name, level, "shop/orders.py", 7, message, (), None, "book")


def test_a_log_record_keeps_its_logger_level_and_place(
    followed: FollowedOutput, output: WorkerOutput, caplog: pytest.LogCaptureFixture
) -> None:
    sent = record("Booked %s", level=logging.ERROR)
    sent.args = ("P-1",)

    assert output.send(line_of(sent))
    followed.close()

    [got] = caplog.records
    assert (got.name, got.levelname, got.getMessage()) == ("shop.orders", "ERROR", "Booked P-1")
    assert (got.filename, got.lineno, got.funcName) == ("orders.py", 7, "book")
    assert got.created == sent.created


def test_a_traceback_comes_along(
    followed: FollowedOutput, output: WorkerOutput, caplog: pytest.LogCaptureFixture
) -> None:
    sent = record("It failed")
    try:
        _ = dict[str, int]()["missing\x1b"]
    except KeyError:
        sent.exc_info = sys.exc_info()

    output.send(line_of(sent))
    followed.close()

    assert "It failed\nTraceback" in caplog.text
    assert "KeyError: 'missing\\x1b'" in caplog.text


def test_printed_lines_reach_the_log_whole_and_the_output_below(
    followed: FollowedOutput, output: WorkerOutput, caplog: pytest.LogCaptureFixture
) -> None:
    below = io.StringIO()
    stdout = PrintedLines(below, output)

    print("one", end="", file=stdout)
    print(" and two\nthree", file=stdout)
    print("no end", end="", file=stdout, flush=True)
    followed.close()

    assert [each.getMessage() for each in caplog.records] == ["one and two", "three"]
    assert {each.name for each in caplog.records} == {PRINTED}
    assert below.getvalue() == "one and two\nthree\nno end"


def test_control_characters_are_escaped(
    followed: FollowedOutput, output: WorkerOutput, caplog: pytest.LogCaptureFixture
) -> None:
    output.send(line_of(record("a\x1b[31m\nERROR forged\ud800")))
    followed.close()

    assert [each.getMessage() for each in caplog.records] == ["a\\u001b[31m\\nERROR forged\\ud800"]


def test_a_long_line_comes_whole_and_one_that_is_too_long_says_what_is_missing(
    followed: FollowedOutput, output: WorkerOutput, caplog: pytest.LogCaptureFixture
) -> None:
    output.send(line_of(record("x" * 20_000)))
    output.send(line_of(record("y" * (LINE_CHARACTERS + 5))))
    followed.close()

    first, second = (each.getMessage() for each in caplog.records)
    assert first == "x" * 20_000
    assert second == "y" * LINE_CHARACTERS + " … (5 more characters)"


def test_a_full_pipe_holds_nobody_up_and_the_dropped_lines_are_counted(
    followed: FollowedOutput, output: WorkerOutput, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = logging.StreamHandler(io.StringIO())
    logging.getLogger("shop.orders").addHandler(hanging)
    assert hanging.lock is not None
    with hanging.lock:
        sent = sum(output.send(line_of(record(f"{n} {'x' * 500}"))) for n in range(4_000))
        assert output.dropped == 4_000 - sent > 0
    logging.getLogger("shop.orders").removeHandler(hanging)
    await_that(lambda: len(caplog.records) == sent, "the lines that had room")

    output.report_dropped()
    followed.close()

    assert output.dropped == 0
    assert followed.dropped == 4_000 - sent
    assert f"{followed.dropped} lines" in caplog.records[-1].getMessage()
    assert len(caplog.records) == sent + 1


def test_warnings_of_headrace_about_the_application_reach_its_log(
    followed: FollowedOutput, output: WorkerOutput, caplog: pytest.LogCaptureFixture
) -> None:
    output.handler.emit(record("The system clock is ahead.", "headrace", logging.WARNING))
    output.handler.emit(record("One record failed.", "headrace.processors.handlers", logging.ERROR))
    followed.close()

    assert [each.getMessage() for each in caplog.records] == ["The system clock is ahead."]


def test_records_of_headrace_itself_stay_where_they_are(
    followed: FollowedOutput, output: WorkerOutput, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("headrace", "headrace.runtime", "py4j.java_gateway"):
        output.handler.emit(record("inner", name))
    output.handler.emit(record("outer", "headrace.examples.captcha.app"))
    output.handler.emit(record("%s", "shop"))
    followed.close()

    assert [each.getMessage() for each in caplog.records] == ["outer", "%s"]


def test_a_worker_has_the_levels_of_the_program(tmp_path: Path) -> None:
    chatty = logging.getLogger("shop.chatty")
    chatty.setLevel(logging.DEBUG)
    followed = FollowedOutput(tmp_path)
    chatty.setLevel(logging.NOTSET)
    before, out = logging.root.handlers[:], sys.stdout
    output = WorkerOutput()

    output.lead_to(str(tmp_path))

    assert chatty.level == logging.DEBUG
    chatty.setLevel(logging.NOTSET)
    logging.root.handlers[:], sys.stdout = before, out
    output.close()
    followed.close()


def test_a_worker_forgets_the_levels_of_a_program_that_it_served_before(tmp_path: Path) -> None:
    quiet = logging.getLogger("shop.quiet")
    runs = []
    for name, level in (("first", logging.ERROR), ("second", logging.NOTSET)):
        (tmp_path / name).mkdir()
        quiet.setLevel(level)
        runs.append(FollowedOutput(tmp_path / name))
    before, out = logging.root.handlers[:], sys.stdout
    output = WorkerOutput()

    output.lead_to(str(tmp_path / "first"))
    first = quiet.level
    output.lead_to(str(tmp_path / "second"))

    assert (first, quiet.level) == (logging.ERROR, logging.NOTSET)
    logging.root.handlers[:], sys.stdout = before, out
    output.close()
    for followed in runs:
        followed.close()


def test_a_worker_without_the_pipe_of_a_driver_changes_nothing(tmp_path: Path) -> None:
    before, out = logging.root.handlers[:], sys.stdout
    output = WorkerOutput()

    output.lead_to(str(tmp_path))

    assert not output.send(line_of(record("nobody listens")))
    assert (logging.root.handlers, sys.stdout) == (before, out)


def test_a_worker_survives_its_driver(
    followed: FollowedOutput, output: WorkerOutput, caplog: pytest.LogCaptureFixture
) -> None:
    followed.close()

    assert not output.send(line_of(record("too late")))
    assert not output.send(line_of(record("too late")))
    assert not caplog.records


def test_bytes_that_are_no_line_are_counted(
    followed: FollowedOutput, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = os.open(tmp_path / "worker-output", os.O_WRONLY | os.O_NONBLOCK)
    os.write(pipe, b"\0\0\0\7\0\1\3?")
    os.close(pipe)
    followed.close()

    assert followed.dropped == 1
    assert len(caplog.records) == 1
