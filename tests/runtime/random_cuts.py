"""Scenarios whose records are all in the log before the first batch; a seed cuts the batches."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from headrace_conformance.build import Scenario, config_of
from headrace_conformance.compare import Recorded
from headrace_conformance.cuts import depends_on_clock
from headrace_conformance.groups import Cases, differing, ends_in_error
from headrace_conformance.hosts import HostedRun, topics_of
from headrace_conformance.joined import Joined, join

from headrace import ConsumerRecord
from headrace.brokers.log import RawRecord, TopicPartition
from headrace.serdes.partitioner import partition_for_key
from headrace.topology.nodes import SinkNode
from tests.runtime.hosting import InProcessHost
from tests.runtime.plain_tasks import run_plain_tasks

TaskOutput = dict[tuple[str, int], list[tuple[Any, ...]]]
"""The records of each topic and partition: timestamp, key, value and headers."""


class RandomShares:
    """An `Admission` that chooses the records of each batch by a seed."""

    limit = 0

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def learn(self, *_: object) -> None:
        """Ignore the cost of a batch."""

    def shares(
        self, _begins: Mapping[TopicPartition, int], available: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return random shares of random partitions; at least one record if there is any."""
        with_records = {name: count for name, count in sorted(available.items()) if count}
        chosen = [name for name in with_records if self._random.random() < 0.5]
        if with_records and not chosen:
            chosen = [self._random.choice(list(with_records))]
        return {name: self._random.randint(1, with_records[name]) for name in chosen}


class CutQuery:
    """Joined scenarios whose records are all in the log before the first batch.

    Args:
        cases: The scenarios.
        folder: Where to work.
        repartitioned: Whether to feed those that repartition, or those that do not.
        partitions: How many partitions topics have.
        options: Of the query.
    """

    def __init__(
        self,
        cases: Cases,
        folder: Path,
        *,
        repartitioned: bool,
        partitions: int,
        **options: Any,
    ) -> None:
        self._folder = folder
        self._partitions = partitions
        config = config_of(next(iter(cases.values()))[0])
        scenarios = {name: scenario for name, (scenario, _) in cases.items()}
        self.joined: Joined = join(scenarios, config, folder / "kept")
        self.host = InProcessHost(
            self.joined.topology,
            topics_of(self.joined),
            config,
            folder / "state",
            partitions=partitions,
            **options,
        )
        self.query = self.host.query
        self.query.set_clock(0)
        self._topics: dict[str, str] = {}
        records: list[RawRecord] = []
        for part in self.joined.parts:
            run = HostedRun(part, self.host, config, each_step=False)
            fits = self._repartitions(run) is repartitioned
            if fits and not self._feeds_back(run) and not self._takes_turns(run):
                self._topics |= dict.fromkeys(part.build.outputs, part.name)
                records += [each for segment in run.segments for each in run.pipe(segment)]
        self.fed = len(records)
        self.query.log.append([self._placed(record) for record in records])

    def cut_by(self, seed: int) -> None:
        """Choose the records of each batch by a seed."""
        planner = self.query.planner
        planner._admission = RandomShares(seed)  # type: ignore[assignment]

    def written(self, *, changelogs: bool = False) -> TaskOutput:
        """Return the records that were written since the last call.

        Args:
            changelogs: Whether to return those of changelogs, too.
        """
        written: TaskOutput = defaultdict(list)
        topics = [*self._topics, *(self.query.plan.changelogs if changelogs else ())]
        for record in self.host.written(topics):
            written[record.topic, record.partition].append(record[3:])
        return dict(written)

    def expected(self) -> TaskOutput:
        """Return the records that the same tasks write if each gets all its records at once."""
        return {name: [*chain(*outputs)] for name, outputs in self.expected_of_tasks().items()}

    def expected_of_tasks(self) -> dict[tuple[str, int], list[list[tuple[Any, ...]]]]:
        """Return the records of `expected`, those of each task in a list of its own."""
        written = run_plain_tasks(
            self.query.program, self.host.layout, self._inputs(), partitions=self._partitions
        )
        for path in (self._folder / "kept").rglob("*.json"):
            path.unlink()  # the state of processors
        return {
            name: [[output[2:] for output in outputs] for outputs in tasks]
            for name, tasks in written.items()
        }

    def _inputs(self) -> dict[tuple[str, int], list[ConsumerRecord]]:
        log = self.query.log
        names = [
            TopicPartition(topic, partition)
            for subtopology in self.query.plan.subtopologies
            for topic in subtopology.topics
            for partition in range(self._partitions)
        ]
        ends = log.end_offsets(names)
        return {
            (name.topic, name.partition): [
                record for records in log.read(name, 0, ends[name]) for record in records
            ]
            for name in names
        }

    def _placed(self, record: RawRecord) -> RawRecord:
        topic, _, timestamp, key, value, headers = record
        partition = 0 if key is None else partition_for_key(key, self._partitions)
        return topic, partition, timestamp, key, value, headers

    def _repartitions(self, run: HostedRun) -> bool:
        return any(subtopology.repartitions for subtopology in self._subtopologies(run))

    def _feeds_back(self, run: HostedRun) -> bool:
        read = {topic for subtopology in self._subtopologies(run) for topic in subtopology.topics}
        return bool(read & self.query.plan.written_topics)

    def _takes_turns(self, run: HostedRun) -> bool:
        """Return whether two subtopologies write one topic: its order depends on the batches."""
        written = [
            topic
            for subtopology in self._subtopologies(run)
            for topic in {n.topic for n in subtopology.nodes.values() if isinstance(n, SinkNode)}
        ]
        return len(written) != len(set(written))

    def _subtopologies(self, run: HostedRun) -> list[Any]:
        mark = run.part.mark
        return [
            subtopology
            for subtopology in self.query.plan.subtopologies
            if not mark or any(mark in name for name in subtopology.nodes)
        ]


def may_be_cut(scenario: Scenario, golden: Recorded) -> bool:
    """Return whether the output of a scenario depends on its records and their times alone."""
    text = json.dumps(scenario)
    return not (
        ends_in_error(golden)
        or depends_on_clock(scenario)
        or scenario.get("config", {}).get("cache")
        # Variables are shared by all tasks, and global tables and patterns are tested elsewhere.
        or any(word in text for word in ("$", "global", "pattern", "dead_letter_queue"))
        or scenario["name"] in differing()
    )


def is_merge(records: Sequence[Any], sequences: Sequence[Sequence[Any]]) -> bool:
    """Return whether records are those of all sequences, each sequence in its own order."""
    states = {(0,) * len(sequences)}
    for record in records:
        states = {
            (*state[:index], state[index] + 1, *state[index + 1 :])
            for state in states
            for index, sequence in enumerate(sequences)
            if state[index] < len(sequence) and sequence[state[index]] == record
        }
    return tuple(map(len, sequences)) in states


def by_key(records: list[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    """Return records by their keys: only records of one key have an order."""
    records_by_key: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for record in records:
        records_by_key[record[1]].append(record)
    return dict(records_by_key)
