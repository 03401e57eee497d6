"""The real sink and start against a model of the broker: more runs with `make chaos-model`."""

from __future__ import annotations

import pytest

from chaos.model.application import CHECKED, Build
from chaos.model.mutants import AT_LEAST_ONCE, MUTANTS
from chaos.model.operating import Scenario
from chaos.model.simulation import BrokenPromiseError, Simulation, run

RUNS = 500
SHARES = 10
MOST_SEEDS = 800
"""How many seeds a broken build may survive."""


@pytest.mark.parametrize(
    "share",
    [0, *(pytest.param(share, marks=pytest.mark.nightly("model")) for share in range(1, SHARES))],
)
def test_every_record_is_written_once_whatever_happens(share: int) -> None:
    for seed in range(share, RUNS, SHARES):
        run(seed)


def test_at_least_once_only_retried_batches_repeat_records() -> None:
    repeated = sum(run(seed, AT_LEAST_ONCE) for seed in range(100))

    assert repeated > 0


@pytest.mark.nightly("model")
@pytest.mark.parametrize("wrong", MUTANTS)
def test_a_broken_build_is_found_out(wrong: str) -> None:
    build, scenario = MUTANTS[wrong]

    def survive() -> None:
        for seed in range(MOST_SEEDS):
            Simulation(seed, build, scenario).run()

    with pytest.raises(BrokenPromiseError):
        survive()


@pytest.mark.nightly("model")
@pytest.mark.parametrize(
    ("scenario", "seeds", "unchecked", "message"),
    [
        (
            "restore",
            20,
            ["checkpoint.checks.check_markers", "checkpoint.checks.check_progress"],
            "an older copy of",
        ),
        ("foreign", 50, ["planning.startup._check_marker_topic"], "a foreign checkpoint was"),
    ],
)
def test_a_start_refuses_what_is_not_its_newest_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
    scenario: Scenario,
    seeds: int,
    unchecked: list[str],
    message: str,
) -> None:
    def survive() -> None:
        for seed in range(seeds):
            Simulation(seed, CHECKED, scenario).run()

    survive()
    for name in unchecked:
        monkeypatch.setattr(f"headrace.runtime.{name}", lambda *_: None)

    with pytest.raises(BrokenPromiseError, match=message):
        survive()


def test_markers_that_are_gone_are_missed_at_the_start_and_by_the_sink() -> None:
    refusals = ""
    for seed in range(30):
        simulation = Simulation(seed, CHECKED, "loss")
        simulation.run()
        refusals += "\n".join(simulation.operator.refusals)

    assert "Topic 'app-markers' is not the one that the checkpoint" in refusals
    assert "is unfinished, and its markers are gone: the group" in refusals
    assert "cannot be retried, because its markers are gone" in refusals


def test_a_broker_that_verifies_nothing_leaves_transactions_open() -> None:
    """Before Kafka 3.6: a request that arrives after its transaction has ended opens another."""

    def survive() -> None:
        for seed in range(MOST_SEEDS):
            Simulation(seed, Build(), verifies=False).run()

    with pytest.raises(BrokenPromiseError, match="never"):
        survive()


def test_a_seed_decides_everything() -> None:
    first, second = Simulation(8, traced=True), Simulation(8, traced=True)

    first.run()
    second.run()

    assert first.scheduler.trace
    assert first.scheduler.trace == second.scheduler.trace


def test_a_failing_seed_prints_its_trace_and_how_to_repeat_it() -> None:
    build, _ = MUTANTS["the commit comes before the records"]

    with pytest.raises(
        BrokenPromiseError, match=r"Seed 0: .* `python -m chaos.model --seed 0`"
    ) as caught:
        run(0, build)

    trace = str(caught.value)
    assert "plans batch 0" in trace
    assert "end_txn(" in trace
