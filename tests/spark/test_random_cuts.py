"""Scenarios on Spark with several partitions, in batches that a seed cuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
from headrace_conformance.groups import Cases, built, groups

from headrace import KafkaStreams
from headrace.spark.notes import BatchNote
from headrace.spark.planning import planner
from headrace.spark.planning.admission import Admission
from headrace.timestamps import FailOnInvalidTimestamp
from tests.runtime.random_cuts import CutQuery, RandomShares, by_key, may_be_cut
from tests.runtime.test_in_process import KEYS_MOVE

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("java")]

CASES: Cases = {
    name: case
    for name, case in built().items()
    if may_be_cut(*case)
    and not case[0].get("config")
    and name not in KEYS_MOVE
    and name != "processor-api/metadata-after-repartition"  # shows the name of the application
}


@dataclass(frozen=True)
class CuttingExtractor(FailOnInvalidTimestamp):
    """The default extractor; in the processes it is sent to, a seed says what a batch reads."""

    seed: int

    def __reduce__(self) -> tuple[Callable[[int], CuttingExtractor], tuple[int]]:
        return _cutting, (self.seed,)


def _cutting(seed: int) -> CuttingExtractor:
    planner.Admission = lambda **_: RandomShares(seed)  # type: ignore[assignment,attr-defined]
    return CuttingExtractor(seed)


@pytest.mark.parametrize(("repartitioned", "seed"), [(False, 11), (True, 12)])
def test_random_batches_write_what_the_tasks_write_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, repartitioned: bool, seed: int
) -> None:
    monkeypatch.setattr(planner, "Admission", Admission)  # put back here: programs are tried out
    # Who writes to a repartition first is chance in Kafka too, so there is one writer.
    partitions = 1 if repartitioned else 3
    [cases] = islice(groups(CASES, largest=len(CASES)), 1)
    cut = CutQuery(cases, tmp_path, repartitioned=repartitioned, partitions=partitions, seed=seed)
    expected = cut.expected()

    config = cut.query.config.with_settings(
        application_id="on-spark",
        state_dir=tmp_path / "spark",
        embedded_path=tmp_path / "state" / "topics.db",
        default_timestamp_extractor=CuttingExtractor(seed),
        num_stream_threads=2,
        trigger="available_now",
    )
    streams = KafkaStreams(cut.joined.topology, config)
    streams.start()
    run = streams._run
    assert run is not None
    streams.await_termination()

    assert cut.fed > 50
    assert run.notes.read(BatchNote).batch > 3
    assert {name: by_key(each) for name, each in cut.written().items()} == {
        name: by_key(each) for name, each in expected.items()
    }
