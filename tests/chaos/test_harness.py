"""The parts of the harness that choose faults and report problems."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos import rounds
from chaos.__main__ import _arguments, _plans, main
from chaos.checks import Verdict
from chaos.contract import AT_LEAST_ONCE
from chaos.faults import FAULTS
from chaos.faults.steps import IN_FIRST_BATCH
from chaos.patching import BREAKS, PATCHES, check_targets
from chaos.processes import Usage, leaks
from chaos.rounds import Plan, Round
from chaos.scene import Fault, Scene
from chaos.sites import BROKERS
from chaos.steps import FOLDER, VICTIMS, arm, disarm, has_fired, reached
from chaos.supervisor import Supervisor
from chaos.workloads import WORKLOADS
from headrace.brokers.log import TopicPartition
from tests.waiting import await_that


@pytest.fixture
def deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The victims, who do not die here."""
    found: list[str] = []
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setitem(VICTIMS, "worker", lambda: found.append("worker"))
    return found


def test_a_step_kills_the_time_it_was_armed_for_and_then_never_again(
    deaths: list[str], tmp_path: Path
) -> None:
    arm(tmp_path, "after-commit", "worker", times=3)

    seen = []
    for _ in range(5):
        reached("after-commit")
        seen.append(len(deaths))

    assert seen == [0, 0, 1, 1, 1]
    assert has_fired(tmp_path)


def test_other_steps_and_disarmed_steps_kill_no_process(deaths: list[str], tmp_path: Path) -> None:
    arm(tmp_path, "after-commit", "worker")
    reached("before-commit")
    disarm(tmp_path)
    reached("after-commit")

    assert deaths == []
    assert not has_fired(tmp_path)


def test_a_patch_of_a_module_that_does_not_exist_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_targets()

    monkeypatch.setitem(PATCHES, "headrace.spark.no_such_module", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        check_targets()


def test_a_seed_gives_the_same_faults_again_and_every_kind_before_one_twice() -> None:
    kinds = tuple(FAULTS)
    on_embedded = [
        kind
        for kind in kinds
        if "embedded" in FAULTS[kind].brokers and FAULTS[kind].workload is None
    ]

    def planned(seed: int) -> list[str]:
        faults = Plan("embedded", "running_aggregate", seed, kinds).faults()
        return [fault.kind for fault in islice(faults, 1 + len(on_embedded))]

    assert planned(1) == planned(1) != planned(2)
    assert planned(1)[0] == IN_FIRST_BATCH.kind
    assert sorted(planned(1)[1:]) == sorted(on_embedded)


def test_faults_of_transactions_are_left_out_without_transactions() -> None:
    kinds = ("zombie", "after-offsets", "before-spark-commit", "kill-worker")
    plan = Plan("kafka", "running_aggregate", 1, kinds, guarantee=AT_LEAST_ONCE)

    assert {fault.kind for fault in islice(plan.faults(), 8)} == {
        "before-spark-commit",
        "kill-worker",
    }


def test_a_choice_is_made_by_the_seed_and_then_in_turn() -> None:
    def chosen(seed: int, count: int) -> list[str]:
        scene = Scene(cast(Any, None), cast(Any, None), cast(Any, None), (), Random(seed), seed)
        return [scene.next_of("abc") for _ in range(count)]

    assert chosen(0, 4) == ["a", "b", "c", "a"]
    assert {first for seed in range(3) for first in chosen(seed, 1)} == {"a", "b", "c"}


def test_a_plan_whose_faults_cannot_happen_has_none() -> None:
    assert list(Plan("embedded", "running_aggregate", 1, ("cut", "delay")).faults()) == []


def test_a_command_line_without_a_possible_fault_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["chaos", "--broker", "embedded", "--faults", "delay"])

    with pytest.raises(SystemExit):
        main()

    assert "none of these faults can happen on embedded" in capsys.readouterr().err


def test_a_run_that_holds_ever_more_files_is_reported() -> None:
    growing = [Usage(10**9, 500 + 15 * second, second) for second in range(60)]
    steady = [Usage(10**9, 500 + second % 3, second) for second in range(60)]

    assert len(list(leaks([growing, steady]))) == 1


def test_a_run_that_holds_ever_more_memory_is_reported() -> None:
    growing = [Usage(900_000_000 + 30_000_000 * second, 500, second) for second in range(60)]
    warmer = [Usage(900_000_000 + 4_000_000 * second, 500, second) for second in range(60)]

    (problem,) = leaks([growing, warmer])

    assert problem == "A run grew from 1,530,000,000 to 2,130,000,000 bytes."


def test_a_standby_that_takes_over_does_not_count_as_growing() -> None:
    waits = [Usage(90_000_000, 24, 7) for _ in range(40)]
    starts = [Usage(90_000_000 * step, 40 * step, 7 + step // 4) for step in range(1, 11)]
    works = [Usage(900_000_000, 420, 10 + second) for second in range(40)]

    assert list(leaks([waits + starts + works])) == []


class _Watcher(SimpleNamespace):
    """A watcher that has made some checks."""

    error = ConnectionError("No broker.")

    def stop(self) -> Verdict:
        return Verdict()


@pytest.fixture
def over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Round:
    """A round whose application has ended well, before its verdict."""
    monkeypatch.setattr(rounds, "judge", lambda *_: Verdict())
    running = Round(Plan("embedded", "punctuation", seed=1), tmp_path)
    running.workload = replace(running.workload, stores={}, settle_seconds=0.0)
    alone = SimpleNamespace(
        application_id="app",
        session=SimpleNamespace(driver=1),
        starts=1,
        dropped=lambda: None,
        close=lambda: True,
        end_clock_faults=lambda: None,
    )
    running.supervisor = cast(Any, alone)
    running.feeder = cast(Any, SimpleNamespace(stop=lambda: None, error=None, sent=7, injected=1))
    running.site = cast(Any, None)
    running.scene = cast(Any, None)
    running.watcher = cast(Any, _Watcher(looks=9))
    running._sampler = cast(Any, SimpleNamespace(join=lambda: None))
    running._usage = {1: [Usage(10**9, 500, second) for second in range(40)]}
    running.await_progress = lambda: 0.5  # type: ignore[method-assign]
    return running


def test_a_round_prints_its_compared_runs_and_how_to_repeat_it(over: Round) -> None:
    entry = over.finish()

    assert (entry.problems, entry.compared, entry.records) == ([], 1, 8)
    assert entry.command == over.plan.command


def test_a_round_in_which_no_run_was_long_enough_to_compare_is_not_clean(over: Round) -> None:
    over._usage = {
        run: [Usage(10**9 * second, 500 * second, second) for second in range(20)]
        for run in range(12)
    }

    entry = over.finish()

    assert entry.compared == 0
    assert entry.problems == ["No run was long enough to compare what it held early and late."]


def test_a_round_rests_until_its_last_run_can_be_compared(
    over: Round, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [Usage(10**9, 500, second) for second in range(5)]
    over._usage = {1: samples}

    def waits(is_so: Callable[[], bool], _seconds: float) -> bool:
        while not is_so():
            samples.append(Usage(10**9, 500, len(samples)))
        return True

    monkeypatch.setattr(rounds, "await_that", waits)
    over.rest()

    assert over.finish().compared == 1


def test_a_round_without_a_check_after_its_last_fault_is_not_clean(over: Round) -> None:
    over.inflict(Fault("kill-broker", lambda _: "node 1"))

    (problem,) = over.finish().problems

    assert problem == (
        "There was no check after the last fault: the reader beside the round failed with "
        "ConnectionError('No broker.')."
    )


@pytest.mark.parametrize("mistake", [None, "ignore-markers"])
def test_the_command_of_a_plan_repeats_it(
    mistake: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("kill-group-coordinator", "stop-worker")
    plan = Plan("cluster", "read_back", 77, kinds, count=5, mistake=mistake)
    monkeypatch.setattr(sys, "argv", plan.command.split()[2:])

    assert [*_plans(_arguments())] == [plan]


@pytest.mark.parametrize("workloads", [1, 2, 3, 11])
@pytest.mark.parametrize("brokers", [1, 2, 3])
def test_the_rounds_bring_each_workload_to_each_broker(
    workloads: int, brokers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [*WORKLOADS][:workloads]
    pairs = workloads * brokers
    words = f"--rounds {pairs} --broker {' '.join(BROKERS[:brokers])} --workloads {' '.join(names)}"
    monkeypatch.setattr(sys, "argv", ["chaos", *words.split()])

    met = {(plan.workload, plan.broker) for plan in _plans(_arguments())}

    assert len(met) == pairs


STANDBY = """
import os, time
print(os.getpid(), "WARNING Process 1 runs the application; this process stands by.", flush=True)
time.sleep(600)
"""


def test_after_a_take_over_the_standby_is_the_one_that_is_kept_running(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, "running_aggregate", {"application.id": "app"})
    supervisor._command = [sys.executable, "-c", STANDBY]
    supervisor.start()
    try:
        assert supervisor.stand_by(), supervisor.last_output()
        first = supervisor.follow()
        second = supervisor.session.driver
        first.kill()
        first.wait()
        assert second != first.pid
        assert supervisor.is_up()
        assert supervisor.starts == 2

        os.kill(second, signal.SIGKILL)
        await_that(lambda: supervisor.starts == 3, "a third start", found=supervisor.last_output)
        assert supervisor.exits == {second: -signal.SIGKILL}
    finally:
        supervisor.kill()


def test_a_standby_that_ends_does_not_stand_by(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, "running_aggregate", {"application.id": "app"})
    supervisor._command = [sys.executable, "-c", "import time; time.sleep(600)"]
    supervisor.start()
    supervisor._command = [sys.executable, "-c", ""]
    try:
        assert not supervisor.stand_by()
        supervisor.dismiss()
        assert supervisor.is_up()
    finally:
        supervisor.kill()


class _Log:
    """A log that remembers what was done to it, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def transaction(self, name: str, **_: object) -> _Log:
        return self

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.done.append("commit")

    def append(self, records: list[str]) -> None:
        self.done.append("records")

    def commit_offsets(self, group: str, offsets: dict[str, int]) -> None:
        self.done.append("offsets")

    def ask_ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        return {TopicPartition(group, 0): 1, TopicPartition("app-leader", 0): 2}


def test_the_mistakes_are_what_they_say() -> None:
    log = _Log()

    with BREAKS["commit-before-produce"](log).transaction("app-0") as transaction:
        transaction.append(["record"])
        transaction.commit_offsets("app-markers", {})
    blind = BREAKS["ignore-markers"](log)

    assert log.done == ["offsets", "commit", "records", "commit"]
    assert blind.committed_offsets("app-markers") == {TopicPartition("app-leader", 0): 2}
    assert blind.committed_offsets("app") == log.committed_offsets("app")
