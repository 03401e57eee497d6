"""Runs a tier of checks and tests: ``make quick``, ``make test`` and ``make nightly``.

Prints what runs and how far it is, and at the end one line with the time of each part. A failure
ends with the command that runs it alone.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
SOURCE = "src/headrace/*"
"""Only the sources of this tree count: some tests run copies of them."""
HOST = "src/headrace/spark/*"
"""Spark's host, much of which runs in processes that Spark starts and ends."""
TESTS = "src/headrace/examples/*/test_*.py"
"""Tests of the examples, which ship with them."""


class Outcome(NamedTuple):
    """The end of a step."""

    name: str
    seconds: float
    is_passed: bool
    details: str = ""

    def __str__(self) -> str:
        failed = "" if self.is_passed else " FAILED"
        return f"{self.name}{failed} {_duration(self.seconds)}{self.details}"


class Step(Protocol):
    """Something that passes or fails."""

    def run(self) -> Outcome:
        """Run it, print what a reader needs to see, and return how it ended."""
        ...


@dataclass(frozen=True)
class Gate:
    """A check that takes seconds: its output is shown if it fails."""

    name: str
    command: Sequence[str]

    def run(self) -> Outcome:
        start = time.monotonic()
        done = subprocess.run(
            [BIN / self.command[0], *self.command[1:]],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        outcome = Outcome(self.name, time.monotonic() - start, done.returncode == 0)
        shown = f"== {outcome}"
        if not outcome.is_passed:
            shown = f"{shown}\n{done.stdout.rstrip()}\n{_again(self.command)}"
        print(shown, flush=True)
        return outcome


@dataclass(frozen=True)
class Command:
    """A command of the Makefile that shows its own progress."""

    name: str
    words: Sequence[str]

    def run(self) -> Outcome:
        print(f"== {self.name}", flush=True)
        start = time.monotonic()
        done = subprocess.run(["make", *self.words], cwd=ROOT, check=False)
        if done.returncode:
            print(f"Run it alone:\n  make {' '.join(self.words)}", flush=True)
        return Outcome(self.name, time.monotonic() - start, done.returncode == 0)


@dataclass(frozen=True)
class Tests:
    """A run of pytest on several workers."""

    name: str
    options: Sequence[str]
    workers: int = 3
    """While one waits, two use the cores."""
    is_measured: bool = False
    """Whether coverage counts the lines that run, in all processes."""

    def run(self) -> Outcome:
        print(f"== {self.name}", flush=True)
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            times = Path(folder) / "times.json"
            workers = [f"-n{self.workers}", "--maxschedchunk=1"]
            pytest = ["pytest", "--progress", f"--times={times}", *workers, *self.options]
            command = ["coverage", "run", "-m", *pytest] if self.is_measured else pytest
            done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False)
            taken: dict[str, float] = json.loads(times.read_text()) if times.exists() else {}
        details = ", ".join(f"{each} {_duration(seconds)}" for each, seconds in taken.items())
        seconds = time.monotonic() - start
        return Outcome(self.name, seconds, done.returncode == 0, f" (all workers: {details})")


LINT = (
    Gate("ruff", ["ruff", "check", "--quiet"]),
    Gate("format", ["ruff", "format", "--check", "--quiet"]),
)
TYPES = (
    Gate("mypy", ["mypy"]),
    Gate("pyright", ["pyright", "--pythonpath", str(BIN / "python")]),
    Gate("import-linter", ["lint-imports", "--no-logo"]),
)
MYPY_DAEMON = Gate("mypy", ["dmypy", "run", "--timeout", "7200"])
"""Keeps what it has read in memory, so that the next run takes seconds."""
MARKED = ("behaviour", "scenarios", "cuts", "cluster", "standby", "faults", "model", "demo")
"""The parts of the tier nightly that tests are marked with."""
COMBINE = Gate("combine", ["coverage", "combine", "--quiet"])
REPORT = ["coverage", "report", "--skip-covered"]
COVERAGE = (
    Gate(
        "coverage",
        [*REPORT, f"--include={SOURCE}", f"--omit={HOST},{TESTS}", "--fail-under=95"],
    ),
    Gate("coverage of the host", [*REPORT, f"--include={HOST}", "--fail-under=90"]),
)


def quick() -> list[Outcome]:
    """Run what needs no process and no coverage."""
    return [*_together([*LINT, MYPY_DAEMON]), Tests("tests", ["--tier=quick"]).run()]


def test() -> list[Outcome]:
    """Run what every push must pass."""
    outcomes = _together([*LINT, *TYPES])
    for path in ROOT.glob(".coverage*"):
        path.unlink()
    tests = Tests("tests", ["--tier=test"], is_measured=True)
    return [*outcomes, tests.run(), COMBINE.run(), *_together(COVERAGE)]


def nightly(part: str) -> list[Outcome]:
    """Run everything there is, or one part of it."""
    parts = nightly_parts()
    if part and part not in parts:
        sys.exit(f"The tier nightly has no part {part!r}. Choose one of {', '.join(parts)}.")
    chosen = [part] if part else list(parts)
    return [step.run() for name in chosen for step in parts[name]]


def nightly_parts() -> Mapping[str, Sequence[Step]]:
    """Return what the tier consists of, by name."""
    seed = random.randrange(1_000_000)
    parts: dict[str, list[Step]] = {
        # Each of these workers has a Spark of its own.
        name: [Tests(name, ["--tier=nightly", f"--part={name}"], workers=2)]
        for name in MARKED
    }
    parts["model"].append(Command("model runs", ["chaos-model", f"SEED={seed}", "COUNT=2000"]))
    queries = ["chaos-queries-model", f"SEED={seed}", "COUNT=2000"]
    parts["model"].append(Command("model runs of queries", queries))
    shuffled = Tests("tests", ["--tier=test", "--thorough", f"--shuffle={seed}"])
    return {
        "tests": [shuffled],
        **parts,
        "fuzz": [Command("fuzz", ["fuzz", f"SEED={seed}", "COUNT=1000"])],
    }


def main() -> int:
    """Run a tier; return 1 if a part of it failed."""
    parser = argparse.ArgumentParser(description="Run a tier of checks and tests.")
    parser.add_argument("tier", choices=["quick", "test", "nightly"])
    parser.add_argument("part", nargs="?", default="", help="a part of the tier nightly")
    given = parser.parse_args()
    start = time.monotonic()
    if given.tier == "quick":
        outcomes = quick()
    else:
        outcomes = test() if given.tier == "test" else nightly(given.part)
    is_passed = all(outcome.is_passed for outcome in outcomes)
    verdict = "passed" if is_passed else "FAILED"
    taken = _duration(time.monotonic() - start)
    print(f"make {given.tier}: {verdict} in {taken}: {'; '.join(map(str, outcomes))}", flush=True)
    return not is_passed


def _together(gates: Sequence[Gate]) -> list[Outcome]:
    """Run gates two at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(Gate.run, gates))


def _again(command: Sequence[str]) -> str:
    return f"Run it alone:\n  {shlex.join(['.venv/bin/' + command[0], *command[1:]])}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


if __name__ == "__main__":
    raise SystemExit(main())
