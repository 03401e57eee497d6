"""The user's own modules, as a worker with installed packages only imports them."""

from __future__ import annotations

import importlib
import py_compile
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.spark.processes.user_modules import NoSourceError, modules_for

pytestmark = pytest.mark.tier("test")  # starts processes

RECEIVER = """
import sys
from pathlib import Path
from headrace.spark.processes.user_modules import provide_modules
folder = Path(sys.argv[1])
provide_modules((folder / "modules").read_bytes())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to import from, whose modules are forgotten afterwards."""
    before = set(sys.modules)
    made = tmp_path / "mine"
    made.mkdir()
    monkeypatch.syspath_prepend(str(made))
    yield made
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, **sources: str) -> None:
    """Write modules; ``_in_`` in a name means a slash."""
    for name, source in sources.items():
        file = folder / f"{name.replace('_in_', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    importlib.invalidate_caches()


def reported(tmp_path: Path, names: set[str], lines: str) -> str:
    """Return what a process prints that has nothing but the modules for some names."""
    (tmp_path / "modules").write_bytes(modules_for(names))
    command = [sys.executable, "-P", "-c", RECEIVER + lines, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    return done.stdout.strip() or done.stderr


def test_a_module_brings_what_it_imports(tmp_path: Path, folder: Path) -> None:
    write(
        folder,
        mine_app="import json\nimport mine_first\nfrom mine_shop.limits import LARGE\n",
        mine_first="from mine_second import NUMBER\n",
        mine_second="NUMBER = 2\n",
        mine_shop_in___init__="",
        mine_shop_in_limits="from . import more\nLARGE = more.MORE\n",
        mine_shop_in_more="MORE = 7\n",
        mine_alone="never = 'named'\n",
    )

    said = reported(
        tmp_path,
        {"mine_app"},
        "import mine_app\nprint(mine_app.LARGE, mine_app.mine_first.NUMBER)\nimport mine_alone",
    )

    assert said == "7 2"
    assert "mine_alone" not in reported(tmp_path, {"mine_app"}, "print([*sys.modules])")


def test_a_late_import_is_sent_too(tmp_path: Path, folder: Path) -> None:
    write(
        folder,
        mine_app="def price():\n    from mine_shop import prices\n    return prices.PRICE\n",
        mine_shop_in___init__="",
        mine_shop_in_prices="PRICE = 3\n",
    )

    assert reported(tmp_path, {"mine_app"}, "import mine_app\nprint(mine_app.price())") == "3"


def test_folders_without_an_init_file_are_packages(tmp_path: Path, folder: Path) -> None:
    write(folder, mine_ns_in_deep_in_limits="LARGE = 4\n", mine_ns_in_other="import mine_late\n")
    write(folder, mine_late="LATE = 1\n")
    importlib.import_module("mine_ns.deep.limits")

    lines = "import mine_ns.deep.limits as a, mine_ns.other as b\nprint(a.LARGE, b.mine_late.LATE)"

    assert reported(tmp_path, {"mine_ns.deep.limits"}, lines) == "4 1"


def test_a_module_is_there_once_with_its_file_and_lines(tmp_path: Path, folder: Path) -> None:
    write(folder, mine_app="import inspect\n\ndef half(n):\n    return n / 0\n")

    lines = """
import traceback, mine_app
provide_modules((folder / "modules").read_bytes())
import mine_app as again
assert again is mine_app and [*sys.meta_path].count(sys.meta_path[0]) == 1
try:
    mine_app.half(1)
except ZeroDivisionError:
    print(traceback.format_exc())
"""

    assert f'File "{folder / "mine_app.py"}", line 4, in half\n    return n / 0' in reported(
        tmp_path, {"mine_app"}, lines
    )


def test_a_later_program_with_other_modules_gets_its_own(tmp_path: Path, folder: Path) -> None:
    write(folder, mine_app="from mine_first import N\n", mine_first="N = 1\n")
    (tmp_path / "before").write_bytes(modules_for({"mine_app"}))
    write(folder, mine_first="N = 2\n")

    lines = """
import mine_app as new
provide_modules((folder / "before").read_bytes())
import mine_app as old
print(new.N, old.N)
"""

    assert reported(tmp_path, {"mine_app"}, lines) == "2 1"


def test_a_file_that_is_edited_later_is_sent_as_it_was_loaded(tmp_path: Path, folder: Path) -> None:
    write(folder, mine_app="N = 1\n")
    loaded = importlib.import_module("mine_app")
    show = "import mine_app\nprint(mine_app.N)"
    assert reported(tmp_path, {"mine_app"}, show) == "1"

    write(folder, mine_app="N = 'another number'\n")

    assert reported(tmp_path, {"mine_app"}, show) == "1"
    importlib.reload(loaded)
    assert reported(tmp_path, {"mine_app"}, show) == "another number"


def test_modules_in_an_archive_are_sent(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        archive.writestr("mine_packed/__init__.py", "from . import inside\n")
        archive.writestr("mine_packed/inside.py", "N = 5\n")
    monkeypatch.syspath_prepend(str(folder / "packed.zip"))
    importlib.import_module("mine_packed")

    shown = reported(tmp_path, {"mine_packed"}, "import mine_packed\nprint(mine_packed.inside.N)")

    assert shown == "5"


def test_an_installed_module_is_not_sent(folder: Path) -> None:
    names = {"json", "msgspec", "msgspec.json", "headrace.spark", "pyspark", "sys", "__main__"}

    assert modules_for(names | {"no such thing", "mine_nothing", "1", ""}) == b""


def test_a_module_without_source_is_refused(folder: Path) -> None:
    write(folder, source="N = 1\n", mine_app="import mine_fast\n")
    py_compile.compile(str(folder / "source.py"), str(folder / "mine_fast.pyc"))

    with pytest.raises(NoSourceError) as caught:
        modules_for({"mine_app"})

    file = str(folder / "mine_fast.pyc")
    assert str(caught.value) == f"module 'mine_fast' is not Python source, but {file!r}"


def test_files_that_cannot_be_read_as_python_are_left_out(tmp_path: Path, folder: Path) -> None:
    write(folder, mine_shop_in___init__="N = 6\n", mine_shop_in_torn="def (\n")
    (folder / "mine_shop" / "odd.py").write_bytes(b"# coding: none\n")
    (folder / "mine_shop" / "again").symlink_to(folder / "mine_shop")

    assert reported(tmp_path, {"mine_shop"}, "import mine_shop\nprint(mine_shop.N)") == "6"
