"""A process dies at each step of the protocol, on real Spark and on each kind of log.

`make chaos` tries the same and more at random; this is the part that always runs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from chaos.faults.steps import die_at
from chaos.ledger import RoundEntry
from chaos.rounds import Plan, Round
from chaos.scene import Fault
from chaos.steps import STEPS


def _die_at_each(steps: tuple[str, ...], plan: Plan, folder: Path) -> RoundEntry:
    """Kill a worker at each of some steps, while one application runs."""
    with Round(plan, folder) as running:
        running.await_first_batch()
        for step in steps:
            running.inflict(Fault(step, partial(die_at, step=step, victim="worker")))
        if plan.mistake is None:
            running.rest()
        return running.finish()


@pytest.mark.parametrize("broker", ["embedded", "kafka"])
def test_nothing_is_lost_or_doubled_whatever_step_is_the_last(broker: str, tmp_path: Path) -> None:
    plan = Plan(broker, "running_aggregate", seed=6, compares_memory=False)

    entry = _die_at_each(STEPS, plan, tmp_path)

    assert [fault.kind for fault in entry.faults] == list(STEPS)
    assert entry.problems == []
    assert not any(entry.verdict.values())


@pytest.mark.nightly("faults")
@pytest.mark.parametrize(
    ("mistake", "wrong"), [("ignore-markers", "doubled"), ("commit-before-produce", "lost")]
)
def test_a_build_that_is_wrong_on_purpose_is_found_out(
    mistake: str, wrong: str, tmp_path: Path
) -> None:
    plan = Plan("kafka", "running_aggregate", seed=6, mistake=mistake)

    entry = _die_at_each(("after-commit",), plan, tmp_path)

    assert entry.verdict[wrong] > 0
