"""Spark around the sink: drivers, and attempts that fail, are repeated and outlive their driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from chaos.model.batches import (
    APPLICATION,
    MOST_SINKS,
    Checkpoint,
    Guarantee,
    Planned,
    compute,
    program,
)
from chaos.model.broker import ModelBroker
from chaos.model.client import IdempotentProducer, ModelLog, ModelTransaction
from chaos.model.network import SimulatedConnection
from chaos.model.scheduler import Process
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.errors import CheckpointError, LeadershipLostError, StreamsError
from headrace.spark.planning.markers import check_markers
from headrace.spark.sink import BatchWriter
from headrace.topology.naming import leader_name, transactional_id

if TYPE_CHECKING:
    from chaos.model.simulation import Simulation

ATTEMPTS = 4
"""How often Spark runs a task before it gives the query up."""
_LEADER = TopicPartition(leader_name(APPLICATION), 0)


@dataclass(frozen=True)
class Build:
    """What the application is made of; a broken build has something else somewhere."""

    writer: type[BatchWriter] = BatchWriter
    transactions: type[ModelTransaction] = ModelTransaction
    producers: type[IdempotentProducer] = IdempotentProducer
    """Write outside of transactions."""
    guarantee: Guarantee = "exactly_once_v2"
    start: tuple[str, ...] = ("lead", "end_transactions")
    """What a driver does before its query starts."""
    reset_ends_transactions: bool = True
    """Whether a reset ends what is open before it forgets markers."""
    unfinished: int = 0
    """How many sink partitions may be missing when a batch is committed."""

    @property
    def checks_markers(self) -> bool:
        """Whether a start looks at the markers; else only the sink does."""
        return "check_markers" in self.start


CHECKED = Build(start=("lead", "end_transactions", "check_markers"))
"""A build that starts as the runner does. The other one shows that the sink needs no such help."""


class Driver:
    """One process that runs the application, from taking the lead until it ends."""

    def __init__(self, simulation: Simulation, number: int, checkpoint: Checkpoint) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._checkpoint = checkpoint
        self._build = simulation.build
        self._name = f"driver-{number}"
        self._news: list[tuple[int, StreamsError | None]] = []
        self._listens: Callable[[], None] | None = None
        self._batch: Planned | None = None
        self._attempts = 0
        self.generation = 0
        self.outcome: StreamsError | None = None
        """Why it ended by itself, if it did not finish."""
        self.process = Process(self._scheduler, self._name, self._run)

    def _run(self, process: Process) -> None:
        self.process = process
        self._log = ModelLog(SimulatedConnection(self._simulation.network, process))
        try:
            for step in self._build.start:
                getattr(self, step)()
            self._simulation.has_started(self)
            self._run_queries()
        except StreamsError as error:
            self._scheduler.say(self._name, f"ends: {type(error).__name__}: {error}")
            self.outcome = error
        else:
            self._simulation.has_finished(self._checkpoint)

    def lead(self) -> None:
        """Take the next generation, as the member of the group that may."""
        found = self._log.committed_offsets(_LEADER.topic, [_LEADER])
        # The first is a time: no generation comes again.
        first = OffsetAndMetadata(self._scheduler.now)
        self.generation = found.get(_LEADER, first).offset + 1
        self._log.client.ask(
            ModelBroker.offset_commit,
            group=_LEADER.topic,
            offsets={_LEADER: OffsetAndMetadata(self.generation)},
            member=self._name,
        )

    def end_transactions(self) -> None:
        """Take over every transactional id there can be, past and present."""
        self._log.end_transactions(transactional_id(APPLICATION, n) for n in range(MOST_SINKS))

    def check_markers(self) -> None:
        """Refuse a checkpoint that does not know what was written."""
        with TemporaryDirectory() as folder:
            self._checkpoint.leave_files(Path(folder))
            check_markers(APPLICATION, cast(Broker, self._log), Path(folder))

    def _run_queries(self) -> None:
        """Run the query, again after it failed, until all batches are written."""
        failures = 0
        while True:
            try:
                self._run_query()
            except (LeadershipLostError, CheckpointError):
                raise
            except StreamsError as error:
                self._scheduler.say(self._name, f"restarts its query: {error}")
                failures += 1
                if failures == 5:
                    raise
                self._sleep(20, 200)
            else:
                return

    def _run_query(self) -> None:
        checkpoint = self._checkpoint
        while (number := checkpoint.committed) < self._simulation.batches:
            self._check_lead()
            if number == len(checkpoint.planned):
                batch = checkpoint.replanned or self._compute(number)
                self._sleep(1, 5)
                checkpoint.plan(batch)
                self._simulation.has_planned(batch)
                self._scheduler.say(self._name, f"plans batch {number}: {batch.sinks}")
            self._sleep(1, 5)
            self._run_batch(checkpoint.planned[number])
            self._sleep(1, 5)
            checkpoint.commit(number)
            self._scheduler.say(self._name, f"commits batch {number}")
            if checkpoint.replanned is not None:
                return
            self._sleep(1, 5)

    def _compute(self, number: int) -> Planned:
        return compute(
            self._scheduler.random,
            self._checkpoint.query,
            number,
            sinks=self._simulation.sinks,
            refusals=self._simulation.refusals,
        )

    def _check_lead(self) -> None:
        found = self._log.committed_offsets(_LEADER.topic, [_LEADER])
        if found.get(_LEADER, OffsetAndMetadata(0)).offset != self.generation:
            raise LeadershipLostError(APPLICATION)

    def _run_batch(self, batch: Planned) -> None:
        """Run attempts until each sink partition has written."""
        left, failures = set(batch.sinks), dict.fromkeys(batch.sinks, 0)
        self._batch = batch
        self._news.clear()
        for sink in batch.sinks:
            self._start_attempt(batch, sink)
        while len(left) > self._build.unfinished:
            news = self._next_news()
            if news is None:
                for sink in sorted(left):  # silent for so long: taken for lost, run elsewhere
                    self._start_attempt(batch, sink)
                continue
            sink, error = news
            if error is None:
                left.discard(sink)
            elif isinstance(error, LeadershipLostError | CheckpointError):
                raise error
            elif sink in left:
                failures[sink] += 1
                if failures[sink] >= ATTEMPTS:
                    raise error
                self._start_attempt(batch, sink)

    def _start_attempt(self, batch: Planned, sink: int) -> None:
        self._attempts += 1
        name = f"{self._name}.{self._attempts} b{batch.number} s{sink}"
        Attempt(self._simulation, name, self, batch, sink)
        if self._scheduler.random.random() < self._simulation.duplicates:
            self._attempts += 1
            Attempt(self._simulation, f"{name} twin", self, batch, sink)

    def tell(self, batch: Planned, sink: int, error: StreamsError | None) -> None:
        """Hear from an attempt; one of an earlier batch is not listened to."""
        if batch is not self._batch:
            return
        self._news.append((sink, error))
        if self._listens is not None:
            self._listens()

    def _next_news(self) -> tuple[int, StreamsError | None] | None:
        if not self._news:
            self.process.wait(self._listen)
            self._listens = None
            self._simulation.network.strike(self.process)
        return self._news.pop(0) if self._news else None

    def _listen(self, number: int) -> None:
        self._listens = partial(self.process.wake, number, None)
        self._scheduler.after(self._scheduler.random.randint(300, 1200), self._listens)

    def _sleep(self, least: int, most: int) -> None:
        self.process.sleep(self._scheduler.random.randint(least, most))
        self._simulation.network.strike(self.process)


class Attempt:
    """One attempt at what a sink partition has of a batch, in a worker of its own."""

    def __init__(
        self, simulation: Simulation, name: str, driver: Driver, batch: Planned, sink: int
    ) -> None:
        self._simulation = simulation
        self._driver = driver
        self._batch = batch
        self._sink = sink
        # The driver notices when a worker is gone.
        gone = StreamsError("The worker is gone.")
        self._process = Process(simulation.scheduler, name, self._run, partial(self._tell, gone))
        simulation.workers.append((driver, self._process))
        simulation.attempts[batch.query, batch.number, sink] += 1

    def _run(self, process: Process) -> None:
        simulation = self._simulation
        scheduler, build = simulation.scheduler, simulation.build
        error: StreamsError | None = None
        try:
            process.sleep(scheduler.random.randint(1, 20))
            simulation.network.strike(process)
            connection = SimulatedConnection(simulation.network, process)
            writer = build.writer(
                program(self._driver.generation, build.guarantee),
                cast(Broker, ModelLog(connection, build.transactions, build.producers)),
                partition=self._sink,
                batch=self._batch.number,
                query=self._batch.query,
            )
            writer.write(self._batch.parcels(self._sink))
        except StreamsError as failure:
            error = failure
        said = "has written" if error is None else f"fails: {type(error).__name__}: {error}"
        scheduler.say(process.name, said)
        self._tell(error)

    def _tell(self, error: StreamsError | None) -> None:
        driver = self._driver
        delay = self._simulation.scheduler.random.randint(1, 10)
        self._simulation.scheduler.after(
            delay, partial(driver.tell, self._batch, self._sink, error)
        )
