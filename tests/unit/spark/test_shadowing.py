"""Files with the names of Python's own modules: refused if workers would import them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace import UnshippableError
from headrace.spark.processes.shadowing import check_module_names

pytestmark = pytest.mark.tier("test")  # starts processes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a program."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.mark.parametrize("file", ["json.py", "json/__init__.py"])
def test_a_module_that_replaces_one_of_python_in_workers_is_refused(
    folder: Path, file: str
) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("raise SystemExit('it was run')")

    with pytest.raises(UnshippableError) as caught:
        check_module_names()

    assert str(caught.value) == (
        "The application cannot be sent to Spark's workers: they would import "
        f"{str(folder / file)!r} in place of Python's own module 'json'. Rename it."
    )


def test_a_module_that_no_worker_imports_may_have_any_name(folder: Path) -> None:
    (folder / "mailbox.py").write_text("")

    check_module_names()


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_given: Any, **_options: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.usefixtures("no_process")
def test_names_that_stand_for_nothing_else_take_no_time(folder: Path) -> None:
    (folder / "orders.py").write_text("")
    (folder / "sys.py").write_text("")  # is built in
    (folder / "os.py").write_text("")  # is frozen
    (folder / "json").mkdir()  # no package
    (folder / "json" / "orders.json").write_text("{}")

    check_module_names()


@pytest.mark.usefixtures("no_process")
def test_workers_import_the_modules_of_the_driver(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "json.py").write_text("")
    own = ModuleType("json")
    own.__file__ = str(folder / "json.py")
    monkeypatch.setitem(sys.modules, "json", own)

    check_module_names()


@pytest.mark.usefixtures("no_process")
def test_a_module_behind_the_standard_library_does_no_harm(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "json.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path[1:], str(folder)])

    check_module_names()


@pytest.mark.usefixtures("no_process")
def test_a_python_that_is_given_finds_modules_in_its_own_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "json.py").write_text("")
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")

    check_module_names()
