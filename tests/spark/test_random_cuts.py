"""Scenarios on Spark with several partitions, in batches that a seed cuts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from headrace_conformance.groups import Cases, built, groups

from headrace import ConsumerRecord, KafkaStreams
from headrace.brokers.log import TopicLog, TopicPartition
from headrace.engine.sinks import Output
from headrace.engine.task import Task
from headrace.runtime.batches import BatchBoundary, ranges
from headrace.runtime.checkpoint.files import read_first
from headrace.runtime.checkpoint.layout import read_layout
from headrace.runtime.planning import planner
from headrace.runtime.planning.admission import Admission
from headrace.runtime.run_files import BatchResult
from headrace.spark.batch_log import SPARK_FOLDER
from headrace.spark.runner import Run
from headrace.state.maps import MemoryStores
from headrace.timestamps import FailOnInvalidTimestamp
from tests.runtime.random_cuts import CutQuery, RandomShares, TaskOutput, by_key, may_be_cut
from tests.runtime.test_in_process import KEYS_MOVE

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("java"),
    pytest.mark.nightly("cuts"),
]

PARTITIONS = 3
CASES: Cases = {
    name: case
    for name, case in built().items()
    if may_be_cut(*case)
    and not case[0].get("config")
    and name not in KEYS_MOVE
    and "@now" not in json.dumps(case[0])  # each task writes its time, under one key
    and name != "processor-api/metadata-after-repartition"  # shows the name of the application
}


@dataclass(frozen=True)
class CuttingExtractor(FailOnInvalidTimestamp):
    """The default extractor; in the processes that receive it, a seed cuts the batches."""

    seed: int

    def __reduce__(self) -> tuple[Callable[[int], CuttingExtractor], tuple[int]]:
        return _cutting, (self.seed,)


def _cutting(seed: int) -> CuttingExtractor:
    planner.Admission = lambda _log, **_: RandomShares(seed)  # type: ignore[assignment,attr-defined]
    return CuttingExtractor(seed)


class CutTasks:
    """The tasks of an application, which get its batches one by one: no payloads, blobs or Spark.

    A repartition is one queue per task. Of one batch, its writers are merged by the times of their
    heads; of equal ones that of the smaller task comes first.

    Args:
        run: The run on Spark; its checkpoint has the batch boundaries.
        log: The log that it has read.
        partitions: How many partitions they have.
    """

    def __init__(self, run: Run, log: TopicLog, *, partitions: int) -> None:
        layout = read_layout(run.plan.application_id, run.checkpoint.folder)
        assert layout is not None, "it ran"
        program, repartitions = run._shipped.program(), layout.repartitions
        self._plan = run.plan
        self._log = log
        self._tasks = [
            (
                subtopology,
                partition,
                Task(
                    [subtopology.subtopology],
                    program.settings,
                    MemoryStores(),
                    task_id=f"{subtopology.id}_{partition}",
                    partition=partition,
                    partitions_of=lambda topic: repartitions.get(topic, partitions),
                ),
            )
            for subtopology in sorted(
                run.plan.subtopologies, key=lambda subtopology: (subtopology.stage, subtopology.id)
            )
            for partition in range(layout.count_of(subtopology.id))
        ]
        self._repartitioned: Counter[tuple[str, int]] = Counter()
        """How many records each partition of a repartition has had."""
        self.written: TaskOutput = defaultdict(list)
        for start, end in pairwise(boundaries(run)):
            self._process(start, end)

    def _process(self, start: BatchBoundary, end: BatchBoundary) -> None:
        inputs: defaultdict[tuple[str, int], list[ConsumerRecord]] = defaultdict(list)
        for each in ranges(start, end):
            name = TopicPartition(each.topic, each.partition)
            for records in self._log.read(name, each.start, each.end):
                inputs[name] += records
        # By repartition and partition, then by the task that wrote them.
        moved: defaultdict[tuple[str, int], dict[tuple[int, int], list[Output]]]
        moved = defaultdict(lambda: defaultdict(list))
        unread = {
            reader.id
            for topic in end.partitions_with_more
            if (reader := self._plan.reader_of(topic))
        }
        for subtopology, partition, task in self._tasks:
            for topic in subtopology.topics:
                has_more = partition in end.partitions_with_more.get(topic, ())
                task.enqueue(topic, inputs[topic, partition], has_more=has_more)
            has_more = not unread.isdisjoint(self._plan.upstream_ids(subtopology))
            for topic in subtopology.repartitions:
                records = self._merged(topic, partition, moved[topic, partition])
                task.enqueue(topic, records, has_more=has_more)
            task.process()
            task.commit()
            for output in task.outputs:
                topic, number = output[0], output[1] or 0
                if topic in self._plan.repartitions:
                    moved[topic, number][subtopology.id, partition].append(output)
                else:
                    self.written[topic, number].append(output[2:])
            task.outputs.clear()

    def _merged(
        self, topic: str, partition: int, streams: Mapping[tuple[int, int], list[Output]]
    ) -> list[ConsumerRecord]:
        in_order = [streams[writer] for writer in sorted(streams)]
        first = self._repartitioned[topic, partition]
        records = [
            ConsumerRecord(topic, partition, first + number, *output[2:])
            for number, output in enumerate(merge(*in_order, key=itemgetter(2)))
        ]
        self._repartitioned[topic, partition] += len(records)
        return records


def boundaries(run: Run) -> Iterator[BatchBoundary]:
    """Yield the batch boundaries that Spark has written to its batch log."""
    first = read_first(run.plan.application_id, run.checkpoint.folder)
    assert first is not None, "it ran"
    yield first
    offsets = run.checkpoint.folder / SPARK_FOLDER / "offsets"
    for number in range(sum(path.name.isdecimal() for path in offsets.iterdir())):
        *_, boundary = (offsets / str(number)).read_text().split("\n")
        yield BatchBoundary.from_dict(json.loads(boundary))


def cut_query(folder: Path, *, repartitioned: bool) -> CutQuery:
    [cases] = islice(groups(CASES, largest=len(CASES)), 1)
    return CutQuery(cases, folder, repartitioned=repartitioned, partitions=PARTITIONS)


def run_on_spark(cut: CutQuery, folder: Path, seed: int) -> Run:
    """Return a run that has read all records."""
    config = cut.query.config.with_settings(
        application_id="on-spark",
        state_dir=folder / "spark",
        embedded_path=folder / "state" / "topics.db",
        default_timestamp_extractor=CuttingExtractor(seed),
        num_stream_threads=2,
        trigger="available_now",
        # If a worker does not start in time, the query restarts, and there are more batches.
        spark={"spark.sql.streaming.minBatchesToRetain": "1000"},
    )
    streams = KafkaStreams(cut.joined.topology, config)
    streams.start()
    run = streams._run
    assert run is not None
    streams.await_termination()
    assert run.run_files.read(BatchResult).batch > 3
    return run


def keys_of(outputs: TaskOutput) -> dict[tuple[str, int], Any]:
    return {name: by_key(each) for name, each in outputs.items()}


@pytest.fixture(autouse=True)
def _admission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "Admission", Admission)  # a trial of a program replaces it


def test_random_batches_write_the_same_as_one_batch(tmp_path: Path) -> None:
    cut = cut_query(tmp_path, repartitioned=False)
    expected = cut.expected()

    run_on_spark(cut, tmp_path, seed=11)

    assert cut.fed > 50
    assert keys_of(cut.written()) == keys_of(expected)


def test_random_batches_through_repartitions_write_the_same_as_plain_tasks(tmp_path: Path) -> None:
    cut = cut_query(tmp_path, repartitioned=True)

    run = run_on_spark(cut, tmp_path, seed=12)
    for path in (tmp_path / "kept").rglob("*.json"):
        path.unlink()  # the state of processors
    # The order of two writers of a repartition is random in Kafka too; here the batches decide.
    tasks = CutTasks(run, cut.query.log, partitions=PARTITIONS)

    assert cut.fed > 50
    assert keys_of(cut.written()) == keys_of(tasks.written)
