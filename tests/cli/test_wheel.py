"""The wheel has what a user needs: the examples with their pages, and the types."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.meta.repository import ROOT

pytestmark = pytest.mark.nightly("demo")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unpacked wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    target = folder / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def headrace(installed: Path, folder: Path, *arguments: str) -> str:
    """Run a command with the wheel alone, in an empty folder; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_example_with_its_page_and_picture(installed: Path) -> None:
    folders = {path.parent.name for path in (ROOT / "src/headrace/examples").glob("*/README.md")}

    for name in folders:
        shipped = installed / "headrace" / "examples" / name
        assert (shipped / "README.md").is_file()
        assert (shipped / "topology.svg").is_file() == (shipped / "app.py").is_file()
    assert (installed / "headrace" / "py.typed").is_file()


def test_an_example_of_the_wheel_is_traced_copied_and_run_from_the_copy(
    installed: Path, tmp_path: Path
) -> None:
    assert "greetings" in headrace(installed, tmp_path, "example")
    traced = headrace(installed, tmp_path, "example", "greetings", "--trace")
    assert "greetings_uppercase" in traced

    headrace(installed, tmp_path, "example", "orders", "--copy", "mine")

    assert "orders" in headrace(installed, tmp_path, "example", "./mine", "--trace")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine"]
