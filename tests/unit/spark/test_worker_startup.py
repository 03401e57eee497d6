"""The start of Spark's Python processes, and the imports they skip."""

from __future__ import annotations

import importlib
import os
import shutil
import stat
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pyspark
import pytest

from headrace.spark.processes import launcher as launcher_program
from headrace.spark.processes import worker_startup
from headrace.spark.processes.fork_server import start_fork_server
from headrace.spark.processes.worker_startup import (
    keep_pandas_out,
    python_launcher,
    socket_directory,
)
from tests.waiting import PATIENCE, await_that

pytestmark = pytest.mark.tier("test")  # starts processes

SAMPLE = """
import os, signal, sys, time
print(sys.argv[1:], os.environ.get("GIVEN"), os.getcwd(), "msgspec" in sys.modules, flush=True)
if sys.argv[1:] == ["stay"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1:] in (["wait"], ["stay"]):
    open(os.environ["PID_FILE"], "w").write(str(os.getpid()))
    time.sleep(600)
sys.exit(7)
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A folder with a module that says how it was started, and ends with 7."""
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "sample.py").write_text(SAMPLE)
    return folder


@pytest.fixture
def launcher(modules: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The program that Spark is given, with its fork server ready."""
    monkeypatch.setattr(sys, "path", [str(modules), *sys.path])
    endings: list[Callable[[], object]] = []
    monkeypatch.setattr("atexit.register", lambda f, *given: endings.append(partial(f, *given)))
    path = python_launcher.__wrapped__()
    listens = Path(path).with_name("server")
    await_that(listens.exists, "the fork server to listen")
    yield path
    for end in endings:
        end()


def started(launcher: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [launcher, *arguments],
        env={**os.environ, "PYTHONPATH": "archives of Spark", **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_module_is_run_by_a_copy_of_the_warm_python(launcher: str) -> None:
    process = started(launcher, "-m", "sample", "a b", GIVEN="x")

    reported, _ = process.communicate(timeout=PATIENCE)

    assert process.returncode == 7
    assert reported == f"['a b'] x {Path.cwd()} True\n"


def test_a_deleted_folder_of_the_launcher_is_recreated_with_a_warm_python(
    launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_startup, "python_launcher", cache(lambda: launcher))
    monkeypatch.setattr(worker_startup, "socket_directory", cache(lambda: None))
    assert worker_startup.restore_python_folders() == []  # this process has no launcher yet
    worker_startup.python_launcher()
    assert worker_startup.restore_python_folders() == []
    shutil.rmtree(Path(launcher).parent)

    assert worker_startup.restore_python_folders() == [Path(launcher).parent]

    await_that(Path(launcher).with_name("server").exists, "the fork server to listen")
    process = started(launcher, "-m", "sample", "a", GIVEN="x")
    reported, _ = process.communicate(timeout=PATIENCE)
    assert reported == f"['a'] x {Path.cwd()} True\n"


def test_a_deleted_folder_of_sockets_is_recreated_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sockets"
    monkeypatch.setattr(worker_startup, "socket_directory", cache(lambda: str(folder)))
    worker_startup.socket_directory()

    assert folder in worker_startup.restore_python_folders()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_without_a_warm_python_a_cold_one_is_started(launcher: str) -> None:
    Path(launcher).with_name("server").unlink()

    process = started(launcher, "-m", "sample", "a b", GIVEN="x")

    reported, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 7
    assert reported == f"['a b'] x {Path.cwd()} False\n"


def test_a_program_is_not_run_by_the_warm_python(launcher: str, modules: Path) -> None:
    program = "import os, sys; print(os.environ['PYTHONPATH'].split(':')[0], sys.argv[1:])"

    reported, _ = started(launcher, "-c", program, "a b").communicate(timeout=PATIENCE)

    assert reported.strip() == f"{modules} ['a b']"


def test_killing_the_launcher_ends_its_copy(launcher: str, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    process = started(launcher, "-m", "sample", "wait", PID_FILE=str(file))
    await_that(lambda: file.exists() and file.read_text(), "the copy to say its process id")
    copy = int(file.read_text())
    os.kill(copy, 0)

    process.kill()
    process.communicate(timeout=PATIENCE)

    await_that(lambda: not Path(f"/proc/{copy}").exists(), f"the copy, process {copy}, to end")


def test_copies_that_ignore_a_request_to_end_are_killed(modules: Path, tmp_path: Path) -> None:
    path = tmp_path / "server"
    server = start_fork_server(path, os.pathsep.join([str(modules), *sys.path]), term_seconds=0.1)
    await_that(path.exists, "the fork server to listen")
    command = [sys.executable, "-S", "-E", launcher_program.__file__, str(path)]
    files = [tmp_path / "first", tmp_path / "second"]
    first, second = (
        subprocess.Popen([*command, "-m", "sample", "stay"], env=os.environ | {"PID_FILE": str(f)})
        for f in files
    )
    await_that(
        lambda: all(file.exists() and file.read_text() for file in files),
        "the copies to say their process ids",
    )
    copies = [int(file.read_text()) for file in files]

    first.kill()
    first.wait(PATIENCE)
    await_that(lambda: not Path(f"/proc/{copies[0]}").exists(), "the first copy to end")
    assert Path(f"/proc/{copies[1]}").exists()
    assert server.stdin is not None
    server.stdin.close()  # as if this process had been killed

    assert server.wait(PATIENCE) == 0
    assert not Path(f"/proc/{copies[1]}").exists()
    second.wait(PATIENCE)


def test_a_pyspark_from_an_archive_is_started_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__file__", "pyspark.zip/pyspark/__init__.py")

    assert python_launcher.__wrapped__() == sys.executable


# Each in a process of its own: pyarrow looks for pandas once.
def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_pandas_is_not_imported_for_an_arrow_array() -> None:
    reported = run(
        "import sys\n"
        "from headrace.spark.processes.worker_startup import keep_pandas_out\n"
        "keep_pandas_out(); keep_pandas_out()\n"
        "import pyarrow as pa\n"
        "print(pa.array([1, 2]).to_pylist(), 'pandas' in sys.modules)\n"
    )

    assert reported == "[1, 2] False"


def test_pandas_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def array(_values: list[int]) -> None:
        pytest.fail("Arrow need not be asked")

    own = types.ModuleType("pandas")
    monkeypatch.setattr(worker_startup, "pa", types.SimpleNamespace(array=array))
    monkeypatch.setitem(sys.modules, "pandas", own)

    keep_pandas_out.__wrapped__()

    assert sys.modules["pandas"] is own


def test_only_pandas_is_hidden_and_only_while_arrow_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {}

    def array(_values: list[int]) -> None:
        for name in ("pandas", "wave"):
            try:
                found[name] = importlib.import_module(name) is not None
            except ModuleNotFoundError:
                found[name] = False

    monkeypatch.setattr(worker_startup, "pa", types.SimpleNamespace(array=array))
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    finders = list(sys.meta_path)

    keep_pandas_out.__wrapped__()

    assert found == {"pandas": False, "wave": True}
    assert sys.meta_path == finders


def test_only_this_user_may_open_the_folder_of_sockets() -> None:
    directory = socket_directory.__wrapped__()

    assert directory is not None
    assert stat.S_IMODE(Path(directory).stat().st_mode) == 0o700
    assert list(Path(directory).iterdir()) == []


def test_a_folder_whose_path_is_too_long_for_a_socket_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(worker_startup, "gettempdir", lambda: str(long))

    directory = socket_directory.__wrapped__()

    assert directory is not None
    assert not Path(directory).is_relative_to(long)


def test_there_is_no_folder_of_sockets_where_no_socket_can_be_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_startup, "_can_bind", lambda _path: False)

    assert socket_directory.__wrapped__() is None
