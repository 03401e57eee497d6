"""A workload on the runtime without Spark: fed in pieces, read in batches that a seed cuts."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.checks import Verdict, verdict
from chaos.contract import EXACTLY_ONCE, TOPIC_SETTINGS, Log, Offsets, Stores, Workload
from chaos.feeding import raw_record
from chaos.patching import BREAKS
from chaos.reading import open_reader
from chaos.stored import contents
from chaos.watching import Watch
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.opening import embedded_path
from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.runtime.run_files import BatchResult
from tests.runtime.in_process import InProcessQuery
from tests.runtime.random_cuts import RandomShares

_TICK_MS = 300
_SETTLING_TICKS = 10
_LAGS_SECONDS = 0.2
"""How long Kafka's end offsets may lag behind a commit."""


@dataclass(frozen=True)
class Round:
    """The findings of an independent reader after a round."""

    workload: Workload
    inputs: Log
    outputs: Log
    changelogs: Log
    committed: Offsets
    markers: Offsets
    open_ends: list[tuple[str, int]]
    watched: Verdict
    batches: int
    deaths: int
    """How often the writer died, so that its batch was replayed."""
    guarantee: str
    stores: Stores
    """The contents of its state."""
    dropped: dict[str, int]
    """How many records were dropped, by reason."""

    def verdict(self) -> Verdict:
        """Return what is wrong with it."""
        return verdict(
            self.workload,
            self.inputs,
            self.outputs,
            self.changelogs,
            self.committed,
            self.markers,
            self.guarantee,
            self.stores,
            self.dropped,
        )


class _DiedError(Exception):
    """A writer is gone."""


class _MortalLog:
    """A log whose writer dies once it has written, if that is its fate."""

    def __init__(self, log: Broker) -> None:
        self._log = log
        self.is_doomed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @contextmanager
    def transaction(self, *given: Any, **named: Any) -> Iterator[Any]:
        with self._log.transaction(*given, **named) as transaction:
            yield transaction
        self._meet_fate()

    def append(self, records: Iterable[Any]) -> None:
        self._log.append(records)
        self._meet_fate()

    def _meet_fate(self) -> None:
        if self.is_doomed:
            self.is_doomed = False
            raise _DiedError


def run_round(
    workload: Workload,
    folder: Path,
    *,
    seed: int,
    count: int,
    brokers: str | None = None,
    guarantee: str = EXACTLY_ONCE,
    mortality: float = 0.0,
    mistake: str | None = None,
    hurries: bool = False,
) -> Round:
    """Feed records and run batches in turn, until everything is read.

    Args:
        workload: The workload that runs.
        folder: Keeps its state.
        seed: Decides the records and the batches.
        count: How many records there are.
        brokers: Where Kafka is; left out: the embedded log.
        guarantee: The guarantee of the application.
        mortality: How likely the writer of a batch dies once it has written.
        mistake: One of `chaos.patching.BREAKS`, if it is to be wrong on purpose.
        hurries: Whether its group commits what is there and not what was read: wrong, too.
    """
    running = _Running(workload, folder, seed, brokers, guarantee)
    running.hurries = hurries
    running.endanger(mortality, BREAKS[mistake] if mistake else lambda log: log)
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
        self, workload: Workload, folder: Path, seed: int, brokers: str | None, guarantee: str
    ) -> None:
        self._workload = workload
        self._guarantee = guarantee
        self._application = workload.name.replace("_", "-")
        config = StreamsConfig(
            application_id=self._application, state_dir=folder, bootstrap_servers=brokers
        )
        self._kind = "kafka" if brokers else "embedded"
        self._address = brokers or str(embedded_path(config))
        with closing(open_log(config)) as log:
            for topic, partitions in {**workload.topics, **workload.outputs}.items():
                own = workload.topic_settings.get(topic, {})
                log.create_topic(topic, partitions=partitions, settings={**TOPIC_SETTINGS, **own})
        self._query = InProcessQuery(
            workload.topology(),
            folder,
            seed=seed,
            shuffle_partitions=(1, 2, 5)[seed % 3],
            application_id=self._application,
            bootstrap_servers=brokers,
            processing_guarantee=guarantee,  # type: ignore[arg-type]  # one of two
            **workload.settings,
        )
        self._query.planner._admission = RandomShares(seed)  # type: ignore[assignment]
        self._watch = Watch(workload, self._kind, self._address, self._application, guarantee)
        self.hurries = False
        self._clock = 0
        self._chance, self._mortality, self._deaths = random.Random(seed), 0.0, 0
        self._mortal = _MortalLog(self._query.log)

    def endanger(self, mortality: float, mistaken: Callable[[Any], Any]) -> None:
        """Kill writers from here on, and do what a mistake makes of it."""
        self._mortality = mortality
        self._query.log = mistaken(self._mortal)

    def feed(self, seed: int, start: int, count: int) -> None:
        self._query.log.append([*map(raw_record, self._workload.records(seed, start, count))])

    def drain(self) -> None:
        while self.batch() or self._lags():
            pass

    def batch(self) -> bool:
        """Run a batch and look on; what it did is committed when the next one is planned."""
        self._clock += _TICK_MS
        self._query.set_clock(self._clock)
        before = self._query.position.offsets
        if self._written() and self.hurries:
            ends = self._query.log.end_offsets(self._offsets())
            self._query.log.commit_offsets(
                self._application,
                {name: OffsetAndMetadata(offset) for name, offset in ends.items()},
            )
        self._watch.look()
        return self._query.position.offsets != before

    def _written(self) -> bool:
        """Run a batch, again if its writer dies; return whether there was anything to do."""
        query, start = self._query, self._query.position
        end = query.planner.next(start)
        if end is start:
            return False
        self._mortal.is_doomed = self._chance.random() < self._mortality
        kept = deepcopy(query._blobs) if self._mortal.is_doomed else query._blobs
        try:
            query.replay(start, end)
        except _DiedError:
            self._deaths += 1
            query._blobs = kept
            query.replay(start, end)
        self._mortal.is_doomed = False  # a batch may write nothing
        query.position = end
        query.batches += 1
        return True

    def _offsets(self) -> dict[TopicPartition, int]:
        position = self._query.position
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

    def _dropped(self) -> dict[str, int]:
        totals = self._query.run_files.read(BatchResult).totals
        dropped = Counter({"refused": sum(totals.refused.values())})
        for nodes in totals.dropped.values():
            for reasons in nodes.values():
                dropped.update(reasons)
        return +dropped

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
                reader.committed(f"{application}-markers"),
                reader.open_ends([*workload.outputs, *logs.values()]),
                self._watch.found,
                self._query.batches,
                self._deaths,
                self._guarantee,
                {store: contents(self._query.tasks_of(store), store) for store in workload.stores},
                self._dropped(),
            )
