"""What ``make demo`` says at its end can be typed as it stands."""

from __future__ import annotations

import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from headrace import StreamsError
from headrace.brokers.sessions import Broker
from tests.cli.conftest import Cli

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words of each command that is printed, in a folder like the repository."""
    shutil.copytree(EXAMPLES, folder / "examples")
    monkeypatch.delitem(sys.modules, "orders", raising=False)
    said: str = runpy.run_path("examples/demo.py")["WHAT_NEXT"]
    sys.modules.pop("orders")
    # A paragraph of indented lines is to be typed.
    typed = "\n".join(part for part in said.split("\n\n") if part.startswith("  "))
    lines = typed.replace("\\\n", " ").split("  .venv/bin/")
    return [shlex.split(line, comments=True) for line in lines if line]


def test_the_commands_of_the_demo_can_be_typed(
    cli: Cli, log: Broker, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_session(*_: object) -> None:
        raise StreamsError("Spark would be started.")

    monkeypatch.setattr("headrace.spark.runner.open_session", open_session)
    log.create_topic("general-revenue")  # the run would
    said = []
    for program, *words in commands:
        if program == "headrace":
            done = cli(*words)
            said.append((words[0], done.err))
        else:
            assert Path(*words).exists()

    assert said == [
        ("describe", ""),
        ("plan", ""),
        ("topics", ""),
        ("topics", ""),
        ("produce", ""),
        ("produce", ""),
        ("run", "Error: Spark would be started.\n"),
        ("consume", ""),
    ]
