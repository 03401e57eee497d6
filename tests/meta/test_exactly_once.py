"""Files that implement exactly-once say which tests to run after a change."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.meta.repository import PACKAGE, ROOT, package_files, syntax_of
from tests.run_tier import MARKED

PROTOCOL = [
    "brokers/embedded/writing.py",
    "brokers/kafka/transactions.py",
    "brokers/kafka/writing.py",
    "clients/reset.py",
    "runtime/batches.py",
    "runtime/checkpoint/batch_log.py",
    "runtime/checkpoint/checks.py",
    "runtime/checkpoint/files.py",
    "runtime/checkpoint/layout.py",
    "runtime/checkpoint/markers.py",
    "runtime/dead_letters.py",
    "runtime/internal_topics.py",
    "runtime/leadership.py",
    "runtime/output/batch_writer.py",
    "runtime/output/refused_records.py",
    "runtime/planning/batch_clock.py",
    "runtime/planning/input_bounds.py",
    "runtime/planning/planner.py",
    "runtime/planning/progress.py",
    "runtime/planning/snapshot_writer.py",
    "runtime/planning/splits.py",
    "runtime/planning/startup.py",
    "runtime/tasks/split_reader.py",
    "spark/batch_log.py",
    "spark/sink.py",
    "spark/source.py",
]
"""The files that implement exactly-once."""

_ADVICE = re.compile(r"Run (`[^`]+`(?: and `[^`]+`)?) after a change here\.")


def test_the_files_of_the_protocol_are_those_that_name_their_tests() -> None:
    naming = [path.relative_to(PACKAGE).as_posix() for path in package_files() if _advice_of(path)]

    assert naming == PROTOCOL


@pytest.mark.parametrize("file", PROTOCOL)
def test_a_file_of_the_protocol_names_tests_that_exist(file: str) -> None:
    for name in _advice_of(PACKAGE / file):
        command, _, part = name.partition(" PART=")
        assert (ROOT / name).exists() or (command == "make nightly" and part in MARKED), name


def _advice_of(path: Path) -> list[str]:
    """Return the commands and tests that the first docstring of a file names."""
    docstring = ast.get_docstring(syntax_of(path)) or ""
    found = _ADVICE.search(" ".join(docstring.split()))
    return [] if found is None else re.findall(r"`([^`]+)`", found[1])
