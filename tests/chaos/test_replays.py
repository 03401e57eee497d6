"""Writers die once they have written, without Spark: which replays are allowed or found wrong."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.checks import Verdict, without_replays
from chaos.contract import AT_LEAST_ONCE, EXACTLY_ONCE, Logged
from chaos.workloads import WORKLOADS
from tests.chaos.in_process_round import Round, run_round
from tests.chaos.workload_params import by_tier
from tests.kafka_broker import start_broker

WORKLOAD = WORKLOADS["running_aggregate"]
SHOWN = [name for name, workload in WORKLOADS.items() if workload.shown]


def mortal_round(
    folder: Path,
    guarantee: str = EXACTLY_ONCE,
    *,
    mistake: str | None = None,
    brokers: str | None = None,
) -> Round:
    done = run_round(
        WORKLOAD,
        folder,
        seed=3,
        count=200,
        brokers=brokers,
        guarantee=guarantee,
        mortality=0.4,
        mistake=mistake,
    )
    assert done.deaths > 1
    return done


@pytest.mark.parametrize(
    "name", ["running_aggregate", "rekeyed_join", "foreign_key_join", "punctuation", "read_back"]
)
def test_a_batch_that_is_replayed_is_there_once(name: str, tmp_path: Path) -> None:
    done = run_round(WORKLOADS[name], tmp_path, seed=3, count=200, mortality=0.4)

    assert done.deaths > 1
    assert done.verdict() == Verdict()
    assert done.watched == Verdict()


@pytest.mark.parametrize(
    ("mistake", "wrong"), [("ignore-markers", "doubled"), ("commit-before-produce", "lost")]
)
def test_a_build_that_is_wrong_on_purpose_is_found_out(
    mistake: str, wrong: str, tmp_path: Path
) -> None:
    done = mortal_round(tmp_path, mistake=mistake)

    assert done.verdict().counts()[wrong] > 0


@pytest.mark.parametrize("name", by_tier(SHOWN))
def test_changelogs_that_come_in_a_transaction_of_their_own_are_found(
    name: str, tmp_path: Path
) -> None:
    done = run_round(WORKLOADS[name], tmp_path, seed=3, count=200, mistake="changelogs-apart")

    found = {kind: count for kind, count in done.verdict().counts().items() if count}

    assert found.keys() == {"torn"}


@pytest.mark.parametrize("name", by_tier(WORKLOADS))
def test_a_group_that_commits_what_was_not_read_is_found(name: str, tmp_path: Path) -> None:
    done = run_round(WORKLOADS[name], tmp_path, seed=3, count=200, hurries=True)

    assert done.verdict().is_clean
    assert done.watched.offsets_ahead > 0


def test_a_group_that_commits_what_waits_behind_a_repartition_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headrace.runtime.planning.input_sync.InputSync._subtopologies_with_buffers",
        lambda _: set(),
    )

    done = run_round(WORKLOADS["rekeyed_join"], tmp_path, seed=3, count=200)

    assert done.verdict().is_clean
    assert done.watched.counts() == {
        **Verdict().counts(),
        "offsets_ahead": done.watched.offsets_ahead,
    }
    assert done.watched.offsets_ahead > 0


@pytest.mark.parametrize(
    "kind", ["embedded", pytest.param("kafka", marks=pytest.mark.nightly("faults"))]
)
def test_at_least_once_a_replayed_batch_is_there_again_and_nothing_else(
    kind: str, tmp_path: Path
) -> None:
    with start_broker() if kind == "kafka" else nullcontext() as broker:
        address = None if broker is None else broker.address
        done = mortal_round(tmp_path, AT_LEAST_ONCE, brokers=address)

    found = done.verdict()

    assert found.examples == []
    assert found.is_clean
    assert found.repeated > 0
    assert done.watched.is_clean
    assert replace(done, guarantee=EXACTLY_ONCE).verdict().doubled > 0


def test_at_least_once_a_batch_that_is_there_again_after_the_next_one_is_doubled() -> None:
    def written(batch: int, identity: str) -> Logged:
        headers = (("batch", f"0_0/{batch}".encode()),)
        return Logged("running-echo", 0, 0, 1, b"k", identity.encode(), headers, 0)

    one, two, next_one = written(1, "a"), written(1, "b"), written(2, "c")
    replayed = [one, one, two, next_one, one, next_one]

    kept, repeated = without_replays({"running-echo": {0: replayed}})

    assert kept == {"running-echo": {0: [one, two, next_one, one]}}
    assert repeated == 2


def test_at_least_once_nothing_may_be_lost(tmp_path: Path) -> None:
    done = mortal_round(tmp_path, AT_LEAST_ONCE)
    for records in done.outputs["running-totals"].values():
        last = records[-1:]
        records[:] = [each for each in records if each.value != last[0].value]

    assert done.verdict().lost > 0
