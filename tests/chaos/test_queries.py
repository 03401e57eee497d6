"""Three instances answer exactly while they and the application are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.queries.__main__ import summary
from chaos.queries.campaign import Campaign, Plan
from chaos.queries.mistakes import MISTAKES
from tests.waiting import PATIENCE


def plan(answers: int, kills: int, **options: Any) -> Plan:
    """Return a plan for a machine that may be busy."""
    return Plan(answers, kills, own_writers=8, recovery_seconds=PATIENCE, **options)


def test_answers_are_exact_while_processes_are_killed(tmp_path: Path) -> None:
    outcome = Campaign(plan(2_000, 2), tmp_path).run()

    assert outcome.problems == [], outcome.tails
    assert outcome.kills == {"instance": 1, "half-written": 1}
    assert outcome.compacted > 0
    assert summary(outcome).endswith("0 wrong.")


@pytest.mark.nightly("faults")
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_answers_are_exact_while_leaders_hand_over_and_stand_still(
    tmp_path: Path, guarantee: str
) -> None:
    each = plan(2_000, 9, guarantee=guarantee)

    outcome = Campaign(each, tmp_path).run()

    assert outcome.problems == [], outcome.tails
    assert {*outcome.kills} == {*each.possible_kinds}


FOUND = {"another-snapshot": "Q1: ", "frozen": "Q10: an answer of "}
"""By mistake how the problem begins that must be found."""


@pytest.mark.nightly("faults")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_an_instance_is_found(tmp_path: Path, mistake: str) -> None:
    outcome = Campaign(plan(20_000, 0, mistake=mistake), tmp_path).run()

    assert any(problem.startswith(FOUND[mistake]) for problem in outcome.problems), outcome
