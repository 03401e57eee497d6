"""No fault of the campaigns vanishes unnoticed: a test holds their names.

A renamed file or function can switch a fault off without an error. Change a list here only if you
add or remove a fault on purpose.
"""

from __future__ import annotations

import ast

from chaos.faults import FAMILIES
from chaos.model.mutants import MUTANTS as MODEL_MUTANTS
from chaos.patching import BREAKS, PATCHES
from chaos.queries_model.mutants import MUTANTS as QUERIES_MUTANTS
from chaos.steps import STEPS
from tests.meta.repository import ROOT, syntax_of

SITES = {
    "processes": {
        "kill-all",
        "kill-driver",
        "kill-jvm",
        "kill-worker",
        "stop-driver",
        "stop-jvm",
        "stop-worker",
    },
    "leadership": {"sleeping-driver", "take-over", "zombie"},
    "protocol": {
        "after-begin",
        "after-commit",
        "after-offsets",
        "after-produce",
        "after-spark-commit",
        "before-begin",
        "before-commit",
        "before-spark-commit",
    },
    "brokers": {
        "kill-broker",
        "kill-group-coordinator",
        "kill-leader",
        "kill-transaction-coordinator",
        "restart-broker",
    },
    "network": {"cut", "delay", "lost-answer", "stall"},
    "disk": {"checkpoint-full", "log-full"},
    "checkpoint": {"torn-commits", "torn-offsets"},
    "clock": {"clock-backwards", "clock-forwards"},
    "bad-input": {
        "broken-bytes",
        "clock-leap",
        "deep-recursion",
        "expanding-records",
        "huge-headers",
        "oversized-records",
        "quiet-input",
        "refused-records",
        "unknown-topics",
    },
    "dependencies": {"registry-refuses", "registry-unauthorized", "registry-unavailable"},
}
"""Every fault that `make chaos` injects, by family."""

REACHED = {
    "_patch_embedded": {"before-begin", "after-begin"},
    "_patch_kafka": {
        "before-begin",
        "after-begin",
        "after-produce",
        "after-offsets",
        "before-commit",
        "after-commit",
    },
    "_Connection": {"after-produce", "after-offsets", "before-commit", "after-commit"},
    "_patch_sink": {"before-spark-commit"},
    "_patch_source": {"after-spark-commit"},
}
"""The steps that each patch of the application reports."""


def test_the_campaign_has_every_fault() -> None:
    assert {name: {fault.kind for fault in family} for name, family in FAMILIES.items()} == SITES


def test_each_patch_reports_its_steps() -> None:
    found: dict[str, set[str]] = {}
    for part in syntax_of(ROOT / "chaos/patching.py").body:
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and (steps := _reached_in(part)):
            found[part.name] = steps

    assert found == REACHED
    assert set().union(*found.values()) == set(STEPS)


def test_each_patch_and_each_deliberate_mistake_is_there() -> None:
    assert sorted(PATCHES) == [
        "confluent_kafka",
        "headrace.brokers.embedded.writing",
        "headrace.runtime.planning.batch_clock",
        "headrace.spark.sink",
        "headrace.spark.source",
    ]
    assert sorted(BREAKS) == ["changelogs-apart", "commit-before-produce", "ignore-markers"]
    assert len(MODEL_MUTANTS) == 26
    assert len(QUERIES_MUTANTS) == 24


def _reached_in(tree: ast.AST) -> set[str]:
    """Return the steps that ``reached("…")`` names."""
    return {
        argument.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "reached"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
