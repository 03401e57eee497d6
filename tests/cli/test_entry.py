"""The command as a process: how it begins and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from headrace import __version__
from headrace.brokers.sessions import Broker
from tests.cli.conftest import Cli

pytestmark = pytest.mark.tier("test")  # starts processes

COMMAND = str(Path(sysconfig.get_path("scripts")) / "headrace")

INTERRUPTING = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""
"""Sends SIGINT to its own process when a module is imported."""


def run(*command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", ["headrace", "headrace.app", "typer", "headrace.cli.topics"])
def test_ctrl_c_while_modules_load_ends_with_130_and_without_a_traceback(
    folder: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Coverage imports what it measures before the command begins.
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    (folder / "sitecustomize.py").write_text(INTERRUPTING)

    done = run(
        COMMAND, "topics", "list", folder=folder, PYTHONPATH=str(folder), INTERRUPT_AT=module
    )

    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [(COMMAND,), (sys.executable, "-m", "headrace")])
def test_the_version_is_an_option_too(folder: Path, command: tuple[str, ...]) -> None:
    done = run(*command, "--version", folder=folder)

    assert (done.returncode, done.stdout) == (0, f"headrace {__version__}\n")


def test_a_reader_that_has_enough_ends_the_command_in_order(
    cli: Cli, folder: Path, log: Broker
) -> None:
    cli("produce", "t", stdin="".join(f"k\t{'x' * 100}{n}\n" for n in range(5_000)))
    consume = f"'{COMMAND}' consume t --from-beginning --timeout 1s --print ''"

    done = run("bash", "-c", f"{consume} | head -n 1; echo ${{PIPESTATUS[0]}}", folder=folder)

    assert done.stdout == f"{'x' * 100}0\n0\n"
    assert done.stderr == ""
