"""A walk through three examples with only the built wheel: its own environment, an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.cli.running_example import RunningExample
from tests.meta.repository import ROOT
from tests.waiting import await_that

pytestmark = pytest.mark.nightly("demo")

UV = Path(sys.executable).with_name("uv")


class Installed:
    """A command `headrace` in an environment with the wheel and nothing of this repository."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], check=True)
        (wheel,) = folder.glob("*.whl")
        environment = folder / "environment"
        self.command = environment / "bin" / "headrace"
        subprocess.run([UV, "venv", "--quiet", "-p", sys.executable, environment], check=True)
        # The versions of the lock file are in the cache of uv, so this needs no network.
        versions = folder / "versions.txt"
        with versions.open("w") as output:
            subprocess.run(
                [UV, "export", "--quiet", "--frozen", "--no-hashes", "--no-emit-project"],
                cwd=ROOT,
                stdout=output,
                check=True,
            )
        subprocess.run(
            [
                *(UV, "pip", "install", "--quiet", "--python", environment / "bin" / "python"),
                *("--constraint", versions, f"{wheel}[spark,kafka,cli,server]"),
            ],
            check=True,
        )

    def headrace(self, folder: Path, *arguments: str) -> str:
        """Run a command to its end; return its output."""
        done = subprocess.run(
            [self.command, *arguments],
            cwd=folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def clean_environment() -> dict[str, str]:
    """Return the variables without those that lead Python to this repository."""
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COVERAGE", "HEADRACE"))
    }


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - clean_environment().keys():
        if name != "PYTEST_CURRENT_TEST":
            monkeypatch.delenv(name)


def test_three_examples_run_from_the_wheel_alone(installed: Installed, tmp_path: Path) -> None:
    assert str(ROOT) not in installed.headrace(tmp_path, "version")

    assert "greetings_uppercase" in installed.headrace(tmp_path, "example", "greetings", "--trace")

    installed.headrace(tmp_path, "example", "orders", "--copy", "mine")
    assert "orders" in installed.headrace(tmp_path, "example", "./mine", "--trace")

    program = [str(installed.command)]
    words = ["user-views", "--instances", "2"]
    with RunningExample(*words, folder=tmp_path, program=program) as example:
        said = example.read_until(r"Instances answer queries at (\S+), (\S+?)\.\s")
        for url in said.groups():
            await_counts(url)

        assert example.stopped() == 0
    assert "Traceback" not in example.said


VIEWS = Counter({"alice": 10, "bob": 2, "carol": 6})
"""The figures of the document."""


def await_counts(url: str) -> None:
    await_that(lambda: counts_at(url) == VIEWS, f"{VIEWS} at {url}", found=lambda: counts_at(url))


def counts_at(url: str) -> Counter[str]:
    """Return the counts of all users as an instance answers; none before it can."""
    try:
        answer = httpx.get(f"{url}/v1/stores/user-views/entries", timeout=30)
    except httpx.TransportError:
        return Counter()
    if answer.status_code != httpx.codes.OK:
        return Counter()
    return Counter({each["key"]: each["value"] for each in json.loads(answer.text)["data"]})
