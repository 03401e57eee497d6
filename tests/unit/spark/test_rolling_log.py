"""The log of Spark's Java never fills the disk, and its writers need not cooperate."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.spark.processes import rolling_log
from headrace.spark.processes.rolling_log import keep_rolling, read_since, roll_over
from tests.waiting import PATIENCE

LARGEST = 1000


@pytest.fixture(autouse=True)
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling_log, "_LARGEST_BYTES", LARGEST)


@pytest.fixture
def java(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that appends the lines of its input to the log."""
    with (
        (tmp_path / "spark.log").open("ab") as target,
        subprocess.Popen(
            ["sh", "-c", "while read line; do echo $line; echo done >&2; done"],
            stdin=subprocess.PIPE,
            stdout=target,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        yield process


def write(java: subprocess.Popen[str], line: str) -> None:
    """Make it write a line, and wait until it has."""
    assert java.stdin is not None
    assert java.stderr is not None
    java.stdin.write(f"{line}\n")
    java.stdin.flush()
    java.stderr.readline()


@pytest.mark.tier("test")  # starts a process
def test_an_open_log_continues_at_its_beginning_after_a_roll_over(
    tmp_path: Path, java: subprocess.Popen[str]
) -> None:
    write(java, "x" * LARGEST)

    roll_over(tmp_path / "spark.log")
    write(java, "after")

    assert (tmp_path / "spark.log").read_text() == "after\n"
    assert (tmp_path / "spark.log.1").read_text() == "x" * (LARGEST - 1) + "\n"


def test_a_small_log_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "spark.log").write_text("x" * LARGEST)

    roll_over(tmp_path / "spark.log")

    assert [path.name for path in tmp_path.iterdir()] == ["spark.log"]
    assert (tmp_path / "spark.log").stat().st_size == LARGEST


def test_a_few_old_ones_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for number in range(6):
            (tmp_path / "spark.log").write_text("x" * LARGEST + str(number))
            roll_over(tmp_path / "spark.log")
    finally:
        os.umask(before)

    old = sorted(path for path in tmp_path.iterdir() if path.name != "spark.log")
    assert [(path.name, path.read_text()[-1]) for path in old] == [
        ("spark.log.1", "5"),
        ("spark.log.2", "4"),
        ("spark.log.3", "3"),
        ("spark.log.4", "2"),
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in old} == {0o600}


def test_of_a_log_that_was_never_rolled_over_the_end_is_kept(tmp_path: Path) -> None:
    (tmp_path / "spark.log").write_text("old" * LARGEST + "x" * LARGEST)

    roll_over(tmp_path / "spark.log")

    assert (tmp_path / "spark.log.1").read_text() == "x" * LARGEST


def test_a_log_that_another_process_rolls_over_is_left_to_it(tmp_path: Path) -> None:
    log_file = tmp_path / "spark.log"
    log_file.write_text("x" * LARGEST + "x")
    with log_file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        roll_over(log_file)

    assert [path.name for path in tmp_path.iterdir()] == ["spark.log"]


def test_a_log_that_is_gone_is_no_failure(tmp_path: Path) -> None:
    roll_over(tmp_path / "spark.log")

    assert [*tmp_path.iterdir()] == []


def test_the_log_rolls_over_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, looks, twice = tmp_path / "spark.log", list[Path](), threading.Event()

    def look(log_file: Path) -> None:
        looks.append(log_file)  # a Spark that tests have started may have its own looked at, too
        if looks.count(own) == 2:
            twice.set()

    monkeypatch.setattr(rolling_log, "_SECONDS", 0.001)
    monkeypatch.setattr(rolling_log, "roll_over", look)

    keep_rolling(own)

    assert twice.wait(PATIENCE), f"looked at {looks}"


def test_lines_written_since_are_found_after_a_roll_over_too(tmp_path: Path) -> None:
    log_file = tmp_path / "spark.log"
    log_file.write_text("before\n")
    size = log_file.stat().st_size

    log_file.write_text("before\nsince\n")
    longer = read_since(log_file, size)
    log_file.write_text("new\n")
    rolled = read_since(log_file, size)

    assert (longer, rolled) == ("since\n", "new\n")
