"""An application's folders and their lock: one process runs it, and a dead one holds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.config import StreamsConfig
from headrace.errors import BrokerError, CheckpointError, CheckpointInUseError
from headrace.home import ApplicationHome, DirectoryLock
from tests.application_home import embedded_home

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
    """Make files readable by others, unless the process says otherwise."""
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


def test_a_released_lock_is_free_while_a_child_process_starts(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    assert lock._file is not None
    inherited = os.dup(lock._file)  # as a child has it until it becomes another program

    lock.release()

    DirectoryLock(tmp_path).acquire()
    os.close(inherited)


@pytest.mark.tier("test")  # starts a process
def test_a_second_process_is_refused_and_the_holder_is_named(tmp_path: Path) -> None:
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


def test_applications_and_clusters_have_their_own_locks(tmp_path: Path) -> None:
    homes = [
        embedded_home(tmp_path, "one"),
        embedded_home(tmp_path, "two"),
        ApplicationHome(tmp_path, tmp_path, "one", "MkU3OEVBNTcwNTJENDM2Qg"),
    ]

    with homes[0].lock(), homes[1].lock(), homes[2].lock():
        assert [home.lock().is_held() for home in homes] == [True] * 3


def test_a_look_at_a_lock_changes_nothing(tmp_path: Path) -> None:
    home = embedded_home(tmp_path)

    assert not home.lock().is_held()
    assert list(tmp_path.iterdir()) == []
    with home.lock():
        assert home.lock().is_held()
        assert home.lock().is_held()
    assert not home.lock().is_held()


def test_a_lock_without_a_name_in_it_still_refuses(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path):
        (tmp_path / "lock").write_text("")

        with pytest.raises(CheckpointInUseError, match="Another process uses the state") as caught:
            DirectoryLock(tmp_path).acquire()

    assert caught.value.holder is None


def test_only_a_process_of_the_same_application_may_stand_by(tmp_path: Path) -> None:
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


@pytest.fixture
def home(tmp_path: Path) -> ApplicationHome:
    """A home whose state and work are in two folders."""
    config = StreamsConfig(
        application_id="app", state_dir=tmp_path / "state", work_dir=tmp_path / "work"
    )
    return ApplicationHome.of(config, "cluster-1")


def test_state_and_work_have_folders_by_application_and_cluster(
    home: ApplicationHome, tmp_path: Path
) -> None:
    home.create()

    assert home.checkpoint == tmp_path / "state" / "app" / "cluster-1" / "checkpoint"
    assert home.spark_log == tmp_path / "work" / "app" / "cluster-1" / "spark.log"
    assert home.new_run_folder().parent == tmp_path / "work" / "app" / "cluster-1"
    assert [path.name for path in home.state.parent.iterdir()] == ["cluster-1"]
    with home.lock():
        assert (tmp_path / "work" / "app" / "cluster-1" / "lock").exists()


def test_without_a_work_dir_everything_is_in_the_state_dir(tmp_path: Path) -> None:
    config = StreamsConfig(application_id="app", state_dir=tmp_path)

    home = ApplicationHome.of(config, "embedded")

    assert home.work == home.state == tmp_path / "app" / "embedded"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "a\0", "x" * 201, "a\n"])
def test_a_name_that_would_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BrokerError, match="cannot name a folder"):
        ApplicationHome(tmp_path, tmp_path, "app", name)
    with pytest.raises(BrokerError, match="cannot name a folder"):
        ApplicationHome(tmp_path, tmp_path, name, "embedded")


def test_only_the_owner_may_enter_the_folders_of_an_application(
    home: ApplicationHome, usual_umask: None
) -> None:
    home.create()

    for folder in (home.state, home.work):
        assert folder.parent.stat().st_mode & 0o777 == 0o700


def test_a_lock_creates_a_folder_that_only_the_owner_may_enter(
    home: ApplicationHome, usual_umask: None
) -> None:
    with home.lock():
        assert home.work.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_were_let_into_stays_as_it_is(
    home: ApplicationHome, usual_umask: None
) -> None:
    home.state.parent.mkdir(parents=True)
    home.state.parent.chmod(0o770)

    home.create()

    assert home.state.parent.stat().st_mode & 0o777 == 0o770
    assert home.state.stat().st_mode & 0o777 == 0o755


def test_a_checkpoint_of_an_older_version_is_refused_with_its_folder_and_the_command(
    home: ApplicationHome,
) -> None:
    home.check_layout()
    older = home.state.parent / "checkpoint"
    older.mkdir(parents=True)

    with pytest.raises(CheckpointError) as caught:
        home.check_layout()

    assert str(caught.value) == (
        f"The checkpoint {str(older)!r} is of an older version, which did not keep state by "
        "cluster. Start again with `headrace reset app`."
    )
    home.delete_discarded()
    home.check_layout()


def test_old_run_folders_are_deleted_and_recent_ones_stay(home: ApplicationHome) -> None:
    home.create()
    old, recent = home.new_run_folder(), home.new_run_folder()
    day_ago = time.time() - 25 * 3600
    os.utime(old, (day_ago, day_ago))

    third = home.new_run_folder()

    assert {path.name for path in home.work.iterdir()} == {recent.name, third.name}


def test_a_discarded_checkpoint_is_out_of_use_until_it_is_deleted(home: ApplicationHome) -> None:
    for content in ("first", "second"):
        home.checkpoint.mkdir(parents=True)
        (home.checkpoint / content).touch()
        home.discard_checkpoint()

    assert not home.has_checkpoint()
    (discarded,) = home.discarded()
    assert [path.name for path in discarded.iterdir()] == ["second"]
    home.discard_checkpoint()
    home.delete_discarded()
    assert list(home.state.iterdir()) == []
