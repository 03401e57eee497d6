"""Typed programs: both type checkers accept the right ones and refuse the wrong ones, line by line.

A line of ``wrong/`` that must be refused says so: ``# E: arg-type; pyright: reportArgumentType``
names mypy's code and pyright's rule, or several of them with commas. A checker without an entry
must accept the line.
"""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT = sorted((HERE / "right").glob("*.py"))
WRONG = sorted((HERE / "wrong").glob("*.py"))

Problems = dict[str, dict[int, set[str]]]
"""By folder and file name, then by line: the codes of what was reported there."""

right_programs = pytest.mark.parametrize("program", RIGHT, ids=lambda path: path.stem)
wrong_programs = pytest.mark.parametrize("program", WRONG, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def mypy_problems() -> Problems:
    output = _output_of("mypy", "--strict", "--output", "json")
    problems: Problems = defaultdict(lambda: defaultdict(set))
    for report in map(json.loads, output.splitlines()):
        if report["severity"] == "error":
            problems[_name(Path(report["file"]))][report["line"]].add(report["code"])
    return problems


@pytest.fixture(scope="module")
def pyright_problems() -> Problems:
    output = _output_of("pyright", "--outputjson", "--pythonpath", sys.executable)
    problems: Problems = defaultdict(lambda: defaultdict(set))
    for report in json.loads(output)["generalDiagnostics"]:
        line = report["range"]["start"]["line"] + 1
        problems[_name(Path(report["file"]))][line].add(report.get("rule", report["message"]))
    return problems


@right_programs
def test_mypy_accepts_a_right_program(program: Path, mypy_problems: Problems) -> None:
    assert mypy_problems[_name(program)] == {}


@right_programs
def test_pyright_accepts_a_right_program(program: Path, pyright_problems: Problems) -> None:
    assert pyright_problems[_name(program)] == {}


@right_programs
def test_a_right_program_also_runs(program: Path) -> None:
    runpy.run_path(str(program), run_name="right_program")


@wrong_programs
def test_mypy_refuses_exactly_the_marked_lines(program: Path, mypy_problems: Problems) -> None:
    assert mypy_problems[_name(program)] == _marked(program, r"# E: ([\w,-]+)")


@wrong_programs
def test_pyright_refuses_exactly_the_marked_lines(
    program: Path, pyright_problems: Problems
) -> None:
    assert pyright_problems[_name(program)] == _marked(program, r"# E: .*pyright: ([\w,]+)")


def _name(program: Path) -> str:
    return f"{program.parent.name}/{program.name}"


def _output_of(checker: str, *options: str) -> str:
    """Run a checker once over all programs; one process is much faster than many."""
    done = subprocess.run(
        [sys.executable, "-m", checker, *options, *map(str, RIGHT + WRONG)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def _marked(program: Path, mark: str) -> dict[int, set[str]]:
    lines = enumerate(program.read_text().splitlines(), start=1)
    found = ((number, re.findall(mark, line)) for number, line in lines)
    return {number: set(codes[0].split(",")) for number, codes in found if codes}
