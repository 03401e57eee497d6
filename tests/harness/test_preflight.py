"""The preflight names what a machine lacks before anything is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.meta.repository import ROOT

TOOLS = ("awk", "cat", "df", "sed", "sh")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The only folder with programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    return folder


def program(path: Path, name: str, says: str) -> None:
    """Write a program that prints a text."""
    file = path / name
    file.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    file.chmod(0o755)


def preflight(path: Path, *tools: str) -> tuple[int, str]:
    done = subprocess.run(
        [path / "sh", ROOT / "tests" / "preflight.sh", *tools],
        env={**os.environ, "PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_machine_that_has_all_passes_in_silence(path: Path) -> None:
    program(path, "java", 'openjdk version "17.0.15" 2025-04-15')
    program(path, "javac", "javac 21")
    program(path, "mvn", "")

    assert preflight(path, "java", "javac", "maven") == (0, "")


def test_everything_that_is_missing_is_named_at_once(path: Path) -> None:
    code, said = preflight(path, "java", "maven")

    assert code == 1
    assert "Java 17 or later is missing (`java` is not there)" in said
    assert "Maven" in said
    assert said.count("apt install") == 2


@pytest.mark.parametrize(
    ("says", "version"), [('java version "1.8.0_392"', "1"), ('openjdk version "11.0.2"', "11")]
)
def test_a_java_that_is_too_old_is_reported(path: Path, says: str, version: str) -> None:
    program(path, "java", says)

    code, said = preflight(path, "java")

    assert code == 1
    assert f"(`java` is {version})" in said


def test_a_full_disk_and_too_little_memory_are_reported(path: Path) -> None:
    (path / "df").unlink()
    (path / "awk").unlink()
    program(path, "df", "")
    program(path, "awk", "3")

    code, said = preflight(path)

    assert code == 1
    assert "has 3 GB free; 4 GB are needed" in said
    assert "3 GB of memory; 6 GB are needed" in said
