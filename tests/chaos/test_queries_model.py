"""The model of queries finds builds that are wrong on purpose."""

from __future__ import annotations

import pytest

from chaos.queries_model.mutants import MUTANTS, NAMED
from chaos.queries_model.simulation import BrokenPromiseError, run

MOST_SEEDS = 1_500
"""How many seeds a wrong build may survive."""


@pytest.mark.parametrize(
    "wrong",
    [
        wrong if wrong in NAMED else pytest.param(wrong, marks=pytest.mark.nightly("model"))
        for wrong in MUTANTS
    ],
)
def test_a_wrong_build_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[wrong]
    if mutant.target is not None:
        monkeypatch.setattr(mutant.target, mutant.name, mutant.replacement)

    def survive() -> None:
        for seed in mutant.seeds(MOST_SEEDS):
            run(seed, mutant.writer)

    with pytest.raises(BrokenPromiseError, match=r"Q\d+: .* --seed \d+"):
        survive()
