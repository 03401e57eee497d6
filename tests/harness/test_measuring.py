"""Coverage counts no test of which there are many, and every other one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from coverage import Coverage

from headrace import durations
from tests.measuring import UNMEASURED, Measuring, is_unmeasured
from tests.meta.repository import ROOT


@pytest.mark.parametrize("path", UNMEASURED)
def test_the_folders_and_files_exist(path: str) -> None:
    assert (ROOT / path).exists()


def test_tests_of_behaviour_are_measured_on_the_driver_alone() -> None:
    assert is_unmeasured("tests/behaviour/test_peek.py::test_it[runtime]")
    assert is_unmeasured("tests/behaviour/test_peek.py::test_it[runtime-3]")
    assert not is_unmeasured("tests/behaviour/test_peek.py::test_it[driver]")
    assert not is_unmeasured("tests/runtime/test_app.py::test_it")


def test_coverage_pauses_and_resumes() -> None:
    coverage = Coverage(data_file=None, include=[durations.__file__], config_file=False)
    coverage.start()
    measuring = Measuring(coverage)

    run(measuring, "tests/meta/test_a.py::test_a", lambda: durations.duration_text(5))
    run(measuring, "tests/unit/test_b.py::test_b", lambda: durations.duration_ms(5, what="it"))
    coverage.stop()
    measuring.pytest_sessionfinish()

    counted = {*(coverage.get_data().lines(durations.__file__) or ())}
    assert not counted & lines_of(durations.duration_text)
    assert counted & lines_of(durations.duration_ms)


def run(measuring: Measuring, nodeid: str, test: Callable[[], object]) -> None:
    """Run a test as pytest does."""
    protocol = measuring.pytest_runtest_protocol(cast("Any", SimpleNamespace(nodeid=nodeid)))
    next(protocol)
    test()
    with pytest.raises(StopIteration):
        protocol.send(None)


def lines_of(function: Callable[..., object]) -> set[int]:
    lines, first = inspect.getsourcelines(function)
    return {*range(first + 1, first + len(lines))}
