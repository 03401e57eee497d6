"""The lock: one process runs an application, and a dead one holds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import CheckpointInUseError
from headrace.home import DirectoryLock, application_directory

HOLDER = """
import sys
from pathlib import Path
from headrace.home import DirectoryLock
DirectoryLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Lets others read what a process makes, unless that says otherwise."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@contextmanager
def other_process(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its input ends, or it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_what_is_given_back_is_free_while_a_process_is_being_started(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    assert lock._file is not None
    inherited = os.dup(lock._file)  # as a child has it until it becomes another program

    lock.release()

    DirectoryLock(tmp_path).acquire()
    os.close(inherited)


@pytest.mark.tier("test")  # starts a process
def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    with other_process(tmp_path) as holder, pytest.raises(CheckpointInUseError) as caught:
        DirectoryLock(tmp_path).acquire()

    assert caught.value.holder == str(holder.pid)
    assert f"Process {holder.pid} uses the state in {str(tmp_path)!r}" in str(caught.value)


@pytest.mark.tier("test")  # starts a process
def test_the_lock_is_free_when_its_holder_was_killed(tmp_path: Path) -> None:
    with other_process(tmp_path) as holder:
        holder.kill()
        holder.wait()

        with DirectoryLock(tmp_path):
            held_by = (tmp_path / "lock").read_text()

    assert held_by.split() == [str(os.getpid())]


def test_a_lock_is_taken_once_and_given_back(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path / "not" / "there" / "yet") as lock:
        with pytest.raises(CheckpointInUseError):
            DirectoryLock(tmp_path / "not" / "there" / "yet").acquire()
        lock.release()
        DirectoryLock(tmp_path / "not" / "there" / "yet").acquire()


def test_other_applications_have_other_locks(tmp_path: Path) -> None:
    one, two = (DirectoryLock(application_directory(tmp_path, name)) for name in ("one", "two"))

    with one, two:
        assert (tmp_path / "one" / "lock").exists()
        assert (tmp_path / "two" / "lock").exists()


def test_a_lock_without_a_name_in_it_still_refuses(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path):
        (tmp_path / "lock").write_text("")

        with pytest.raises(CheckpointInUseError, match="Another process uses the state") as caught:
            DirectoryLock(tmp_path).acquire()

    assert caught.value.holder is None


def test_who_runs_the_same_application_may_stand_by_and_others_may_not(tmp_path: Path) -> None:
    leader, standby = (
        DirectoryLock(tmp_path, log="kafka:9092"),
        DirectoryLock(tmp_path, log="kafka:9092"),
    )
    elsewhere = DirectoryLock(tmp_path, log="other:9092")

    with leader:
        taken = standby.try_acquire()
        with pytest.raises(CheckpointInUseError):
            elsewhere.try_acquire()
        with pytest.raises(CheckpointInUseError):
            DirectoryLock(tmp_path).acquire()

    assert not taken
    assert standby.try_acquire()
    assert standby.try_acquire()
    standby.release()


def test_only_the_owner_may_see_the_state_of_an_application(
    tmp_path: Path, usual_umask: None
) -> None:
    directory = application_directory(tmp_path / "state", "app")

    with DirectoryLock(directory):
        assert directory.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_others_were_let_into_stays_as_it_is(
    tmp_path: Path, usual_umask: None
) -> None:
    tmp_path.chmod(0o770)

    with DirectoryLock(tmp_path):
        assert tmp_path.stat().st_mode & 0o777 == 0o770
