"""A workload on the runtime without Spark: fed in pieces, read in batches that a seed cuts."""

from __future__ import annotations

import random
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from chaos.checks import Verdict, verdict
from chaos.contract import TOPIC_SETTINGS, Log, Offsets, Workload
from chaos.reading import open_reader
from chaos.watching import Watch
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.opening import embedded_path
from headrace.config import StreamsConfig
from headrace.spark.planning.positions import Position
from tests.runtime.in_process import InProcessQuery
from tests.runtime.random_cuts import RandomShares

_TICK_MS = 300
_SETTLING_TICKS = 10
_LAGS_SECONDS = 0.2
"""How long Kafka's end offsets may lag behind a commit."""


@dataclass(frozen=True)
class Round:
    """What an independent reader finds after a round."""

    workload: Workload
    inputs: Log
    outputs: Log
    changelogs: Log
    committed: Offsets
    markers: Offsets
    open_ends: list[tuple[str, int]]
    watched: Verdict
    batches: int

    def verdict(self) -> Verdict:
        """Return what is wrong with it."""
        return verdict(
            self.workload,
            self.inputs,
            self.outputs,
            self.changelogs,
            self.committed,
            self.markers,
        )


def run_round(
    workload: Workload, folder: Path, *, seed: int, count: int, brokers: str | None = None
) -> Round:
    """Feed records and run batches in turn, until everything is read."""
    running = _Running(workload, folder, seed, brokers)
    chance = random.Random(seed)
    fed = 0
    while fed < count:
        act = workload.act - fed % workload.act if workload.act else count
        size = min(chance.randint(1, 120), act, count - fed)
        running.feed(seed, fed, size)
        fed += size
        for _ in range(chance.randint(0, 4)):
            running.batch()
        if size == act:
            running.drain()
    running.drain()
    for _ in range(_SETTLING_TICKS):
        running.batch()
    return running.found()


class _Running:
    def __init__(
        self, workload: Workload, folder: Path, seed: int, brokers: str | None = None
    ) -> None:
        self._workload = workload
        self._application = workload.name.replace("_", "-")
        config = StreamsConfig(
            application_id=self._application, state_dir=folder, bootstrap_servers=brokers
        )
        self._kind = "kafka" if brokers else "embedded"
        self._address = brokers or str(embedded_path(config))
        with closing(open_log(config)) as log:
            for topic, partitions in {**workload.topics, **workload.outputs}.items():
                log.create_topic(topic, partitions=partitions, settings=TOPIC_SETTINGS)
        self._query = InProcessQuery(
            workload.topology(),
            folder,
            seed=seed,
            shuffle_partitions=(1, 2, 5)[seed % 3],
            application_id=self._application,
            bootstrap_servers=brokers,
            **workload.settings,
        )
        self._query._reader._plan()._admission = RandomShares(seed)  # type: ignore[assignment]
        self._watch = Watch(workload, self._kind, self._address, self._application)
        self._clock = 0

    def feed(self, seed: int, start: int, count: int) -> None:
        self._query.log.append(
            [
                (each.topic, each.partition, each.timestamp, each.key, each.value, None)
                for each in self._workload.records(seed, start, count)
            ]
        )

    def drain(self) -> None:
        while self.batch() or self._lags():
            pass

    def batch(self) -> bool:
        """Run a batch and commit what it read, as the driver does; then look on."""
        self._clock += _TICK_MS
        self._query.set_clock(self._clock)
        before = self._query.position.get("offsets")
        if self._query.batch():
            self._query.log.commit_offsets(
                self._application,
                {name: OffsetAndMetadata(offset) for name, offset in self._offsets().items()},
            )
        self._watch.look()
        return self._query.position.get("offsets") != before

    def _offsets(self) -> dict[TopicPartition, int]:
        position = Position.from_dict(self._query.position)
        return {
            TopicPartition(topic, partition): offset
            for topic, offsets in position.offsets.items()
            for partition, offset in enumerate(offsets)
        }

    def _lags(self) -> bool:
        if self._kind == "kafka":
            time.sleep(_LAGS_SECONDS)
        offsets = self._offsets()
        return any(
            end > offsets[name] for name, end in self._query.log.end_offsets(offsets).items()
        )

    def found(self) -> Round:
        self._watch.close()
        workload, application = self._workload, self._application
        logs = {store: f"{application}-{store}-changelog" for store in workload.stores}
        with closing(open_reader(self._kind, self._address)) as reader:
            changelogs = reader.read(logs.values(), {})
            return Round(
                workload,
                reader.read(workload.topics, {}),
                reader.read(workload.outputs, {}),
                {store: changelogs[topic] for store, topic in logs.items()},
                reader.committed(application),
                reader.committed(f"{application}-epochs"),
                reader.open_ends([*workload.outputs, *logs.values()]),
                self._watch.found,
                self._query.batches,
            )
