"""The families "bad input" and "dependencies": what they do, and that wrong counts are found."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast
from urllib.error import HTTPError, URLError

import pytest

from chaos.__main__ import _arguments
from chaos.contract import Sent
from chaos.faults import FAMILIES, FAULTS, bad_input, dependencies
from chaos.patching import PATCHES
from chaos.registry import Registry
from chaos.rounds import Plan
from chaos.scene import NoRecoveryError, NothingHappenedError, Scene
from chaos.steps import FOLDER, leap
from chaos.workloads import WORKLOADS
from chaos.workloads.bad_input import KINDS, bad_record
from chaos.workloads.rekeyed_join import BUFFERED_RECORDS
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.planning import batch_clock
from headrace.runtime.run_files import Control
from tests.chaos.in_process_round import Round, run_round


@cache
def clean_round() -> Round:
    with TemporaryDirectory() as folder:
        return run_round(WORKLOADS["bad_input"], Path(folder), seed=3, count=600)


def test_a_round_drops_for_every_reason_and_counts_each() -> None:
    done = clean_round()

    assert done.dropped.keys() == {"deserialization", "processing", "production", "refused"}
    assert done.verdict().is_clean
    dead_letters = sum(map(len, done.outputs["bad-letters"].values()))
    assert dead_letters == sum(done.dropped.values())


@pytest.mark.parametrize("reason", ["deserialization", "production", "refused", "late"])
def test_a_drop_that_is_counted_for_another_reason_is_found(reason: str) -> None:
    done = clean_round()
    wrong = Counter(done.dropped)
    wrong[reason] += 2

    found = Round(**{**vars(done), "dropped": dict(wrong)}).verdict()

    assert {kind: count for kind, count in found.counts().items() if count} == {"miscounted": 2}


@pytest.mark.parametrize(("copies", "kind"), [(0, "lost"), (2, "doubled")])
def test_a_dead_letter_that_is_missing_or_repeated_is_found(copies: int, kind: str) -> None:
    done = clean_round()
    dead_letters = done.outputs["bad-letters"][0]
    changed = [*dead_letters[:5], *[dead_letters[5]] * copies, *dead_letters[6:]]

    found = Round(
        **{**vars(done), "outputs": {**done.outputs, "bad-letters": {0: changed}}}
    ).verdict()

    assert getattr(found, kind) == 1


def test_faults_of_a_workload_are_left_out_of_the_rounds_of_others() -> None:
    kinds = tuple(FAULTS)

    def planned(workload: str) -> set[str]:
        faults = Plan("kafka", workload, 1, kinds).faults()
        return {next(faults).kind for _ in range(2 * len(kinds))}

    own, away, join = (planned(name) for name in ("bad_input", "framed_aggregate", "rekeyed_join"))
    registry = {fault.kind for fault in dependencies.FAULTS}
    assert {*KINDS, "clock-leap"} <= own
    assert registry.isdisjoint(own)
    assert registry <= away
    assert away.isdisjoint(KINDS)
    assert "quiet-input" in join
    assert join.isdisjoint({*KINDS, *registry})
    assert planned("running_aggregate").isdisjoint({*KINDS, *registry, "quiet-input"})


@pytest.mark.parametrize(
    ("families", "workloads"),
    [
        (["bad-input"], ["bad_input", "rekeyed_join"]),
        (["dependencies", "bad-input"], ["framed_aggregate", "bad_input", "rekeyed_join"]),
        (["disk"], list(WORKLOADS)),
    ],
)
def test_families_choose_their_faults_and_workloads(
    families: list[str], workloads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["chaos", "--families", *families])

    given = _arguments()

    assert given.faults == [fault.kind for name in families for fault in FAMILIES[name]]
    assert list(given.workloads) == workloads


class _Feeder:
    """Keeps what a fault writes."""

    def __init__(self) -> None:
        self.records: list[Sent] = []
        self.sent = 500

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    @property
    def injected(self) -> int:
        return len(self.records)

    def inject(self, records: Iterable[Sent]) -> None:
        self.records += records


class _Supervisor(SimpleNamespace):
    @property
    def log(self) -> Path:
        return Path(self.folder, "application.log")

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder)

    def clock_ms(self) -> int:
        return 1_000_000


@pytest.fixture
def scene(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Scene:
    for name in ("_LEAP_SECONDS", "_PLAN_SECONDS", "_QUIET_SECONDS"):
        monkeypatch.setattr(bad_input, name, 0.1)
    monkeypatch.setattr(dependencies, "_NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(dependencies, "_LONGEST_AWAY", 0.0)
    supervisor = _Supervisor(folder=tmp_path)
    supervisor.log.touch()
    return Scene(
        cast(Any, None), cast(Any, supervisor), cast(Any, _Feeder()), (), Random(1), 1, registry
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_burst_writes_records_of_its_kind_each_its_own(kind: str, scene: Scene) -> None:
    feeder = cast(_Feeder, scene.feeder)

    details = [FAULTS[kind].inflict(scene) for _ in range(2)]

    counts = [int(detail.removesuffix(" records")) for detail in details]
    assert sum(counts) == len(feeder.records)
    assert feeder.records[0] == bad_record(kind, 1, 10_000_000)
    assert {each.topic for each in feeder.records} == {"bad-events"}
    assert len({each.timestamp for each in feeder.records}) > len(feeder.records) // 2


def test_a_quiet_input_gets_nothing_while_the_other_one_has_more_than_a_task_buffers(
    scene: Scene,
) -> None:
    feeder = cast(_Feeder, scene.feeder)

    detail = FAULTS["quiet-input"].inflict(scene)

    assert detail == f"{len(feeder.records)} records"
    by_partition = Counter((each.topic, each.partition) for each in feeder.records)
    assert {topic for topic, _ in by_partition} == {"clicks"}
    assert min(by_partition.values()) > 2 * BUFFERED_RECORDS
    assert len({(each.value or b"").partition(b"user")[2] for each in feeder.records}) == len(
        feeder.records
    )


def write_clock(scene: Scene, number: int, clock: int) -> None:
    folder = scene.supervisor.checkpoint / "offsets"
    folder.mkdir(exist_ok=True)
    (folder / str(number)).write_text(f"v1\n{{}}\n{json.dumps({'clock': clock})}")


@pytest.fixture
def planned(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clocks of the batches that are planned while a clock is wrong, and after that."""
    clocks: list[int] = []

    def leaping(folder: Path, milliseconds: int) -> None:
        leap(folder, milliseconds)
        if clocks:
            number = len(list(scene.supervisor.checkpoint.glob("offsets/*")))
            write_clock(scene, number, clocks.pop(0))

    write_clock(scene, 0, 999_000)
    monkeypatch.setattr(bad_input, "leap", leaping)
    return clocks


def test_a_wrong_clock_that_no_batch_could_follow_does_not_count(
    scene: Scene, planned: list[int]
) -> None:
    with pytest.raises(NothingHappenedError, match="No batch was planned"):
        FAULTS["clock-leap"].inflict(scene)


@pytest.mark.parametrize(
    ("clocks", "problem"),
    [([1_000_000], "stands still"), ([999_500, 2_592_001_000], "stands still")],
)
def test_a_batch_clock_that_stands_still_after_a_leap_is_no_recovery(
    clocks: list[int], problem: str, scene: Scene, planned: list[int]
) -> None:
    planned[:] = clocks

    with pytest.raises(NoRecoveryError, match=problem):
        FAULTS["clock-leap"].inflict(scene)


def test_the_patch_makes_the_system_clock_of_batches_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(batch_clock, "time", time)  # set again after the test
    PATCHES[batch_clock.__name__](batch_clock)
    start = BatchBoundary({}, 0)

    def read() -> int:
        return batch_clock.BatchClock().read(start, Control())

    right = read()
    leap(tmp_path, 3_600_000)
    assert read() - right >= 3_600_000
    leap(tmp_path, 0)
    assert read() - right < 3_600_000


AWAY = [fault.kind for fault in dependencies.FAULTS]


def status(registry: Registry) -> int | None:
    """Return the status of an answer; None if there is no connection."""
    try:
        with urllib.request.urlopen(f"{registry.url}/schemas/ids/7") as answer:
            assert "Number 7." in json.loads(json.load(answer)["schema"])["doc"]
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except URLError:
        return None


@pytest.fixture
def own_registry() -> Iterator[Registry]:
    with closing(Registry()) as registry:
        yield registry


def test_a_registry_is_away_and_comes_back(own_registry: Registry) -> None:
    seen = [status(own_registry)]
    own_registry.failure = 503
    seen.append(status(own_registry))
    own_registry.failure = None
    own_registry.refuse()
    seen.append(status(own_registry))
    own_registry.accept()
    seen.append(status(own_registry))

    assert seen == [200, 503, None, 200]


@pytest.mark.parametrize("kind", AWAY)
def test_a_registry_that_no_process_missed_does_not_count(
    kind: str, scene: Scene, own_registry: Registry
) -> None:
    object.__setattr__(scene, "registry", own_registry)

    with pytest.raises(NothingHappenedError, match="did not need the registry"):
        FAULTS[kind].inflict(scene)

    assert status(own_registry) == 200


@pytest.mark.parametrize(("kind", "expected"), [*zip(AWAY, [503, 401, None], strict=True)])
def test_a_registry_that_is_missed_counts(
    kind: str,
    expected: int | None,
    scene: Scene,
    own_registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    object.__setattr__(scene, "registry", own_registry)
    met: list[int | None] = []

    def noticing(is_so: Any, _seconds: float) -> bool:
        met.append(status(own_registry))
        scene.supervisor.log.write_text("INFO STATE REBALANCING\n")
        return bool(is_so())

    monkeypatch.setattr(dependencies, "await_that", noticing)

    assert FAULTS[kind].inflict(scene).endswith(" s")

    assert met == [expected]
    assert status(own_registry) == 200
