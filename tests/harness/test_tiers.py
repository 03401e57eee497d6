"""Every test runs in some tier, and a quick one starts no process."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.meta.repository import ROOT, python_files, syntax_of
from tests.run_tier import MARKED, nightly_parts

STARTS_A_PROCESS = "tests/unit/test_home.py::test_the_lock_is_free_when_its_holder_was_killed"


def pytest_says(*options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def marks(name: str) -> set[str]:
    """Return the arguments of all marks of a name."""
    return {
        ast.literal_eval(node.args[0])
        for path in python_files()
        if path.is_relative_to(ROOT / "tests")
        for node in ast.walk(syntax_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == f"pytest.mark.{name}"
        and isinstance(node.args[0], ast.Constant)
    }


def test_every_mark_of_nightly_is_a_part_of_it() -> None:
    assert marks("nightly") == {*MARKED}
    assert {*MARKED} < nightly_parts().keys()
    assert marks("tier") == {"test"}


@pytest.mark.parametrize(
    ("tier", "hosts"),
    [
        ("quick", ["driver"]),
        ("test", ["driver", "runtime"]),
        ("nightly", ["driver", "runtime", "embedded", "kafka"]),
    ],
)
def test_a_tier_has_its_own_tests_and_those_of_the_tiers_before(
    tier: str, hosts: list[str]
) -> None:
    said = pytest_says("--collect-only", "-q", "--tier", tier, "tests/behaviour/test_peek.py")

    assert [
        host for host in ("driver", "runtime", "embedded", "kafka") if f"[{host}]" in said
    ] == hosts


def test_a_test_that_is_named_in_full_runs_in_any_tier() -> None:
    name = "tests/behaviour/test_peek.py::test_peek_passes_on_what_it_was_given[runtime]"

    assert "1 passed" in pytest_says("--tier", "quick", name)


def test_a_quick_test_that_starts_a_process_fails_with_the_command_that_repeats_it() -> None:
    said = pytest_says("--tier", "quick", "--progress", STARTS_A_PROCESS)

    assert "ProcessInQuickTestError: A test of the tier quick starts a process" in said
    assert said.rstrip().splitlines()[-1].startswith("=")
    assert (
        f"Run the failed tests alone:\n  .venv/bin/pytest --tier quick {STARTS_A_PROCESS}" in said
    )


def test_a_shuffled_run_has_the_same_tests_in_the_order_of_its_seed() -> None:
    def collected(*options: str) -> list[str]:
        said = pytest_says("--collect-only", "-q", *options, "tests/unit/windows")
        return [line for line in said.splitlines() if "::" in line]

    plain, one, same, other = (
        collected(*options)
        for options in ((), ("--shuffle=1",), ("--shuffle=1",), ("--shuffle=2",))
    )

    assert one == same != other
    assert sorted(one) == sorted(plain) != one
