"""The real applier against a model of writer and broker: `make chaos-queries-model` runs more."""

from __future__ import annotations

import pytest

from chaos.queries_model.simulation import Simulation, run

SHARES = 4


@pytest.mark.parametrize("share", range(SHARES))
def test_every_answer_is_the_snapshot_that_it_names(share: int) -> None:
    followed = sum(run(seed) for seed in range(share, 200, SHARES))

    assert followed > 300


def test_a_seed_decides_everything() -> None:
    first, second = Simulation(8, traced=True), Simulation(8, traced=True)

    first.run()
    second.run()

    assert first.trace
    assert first.trace == second.trace
