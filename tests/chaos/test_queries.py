"""Three instances answer exactly while they and the application are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.queries.__main__ import summary
from chaos.queries.campaign import Campaign, Plan
from tests.waiting import PATIENCE


def plan(answers: int, kills: int, mistake: str | None = None) -> Plan:
    """Return a plan for a machine that may be busy."""
    return Plan(answers, kills, mistake=mistake, behind_seconds=PATIENCE, recovery_seconds=PATIENCE)


# Beside other tests it takes minutes, because coverage slows each of its processes.
pytestmark = pytest.mark.nightly("faults")


def test_answers_are_exact_while_processes_are_killed(tmp_path: Path) -> None:
    outcome = Campaign(plan(2_000, 2), tmp_path).run()

    assert outcome.problems == [], outcome.tails
    assert outcome.kills == {"instance": 1, "half-written": 1}
    assert summary(outcome).endswith("0 wrong.")


def test_answers_of_another_snapshot_are_found(tmp_path: Path) -> None:
    outcome = Campaign(plan(2_000, 0, "another-snapshot"), tmp_path).run()

    assert any(problem.startswith("Q1: by-") for problem in outcome.problems), outcome
