"""Spark around the sink: drivers, and attempts that fail, are repeated and outlive their driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from chaos.model.batches import (
    APPLICATION,
    MOST_SINKS,
    TASKS,
    Guarantee,
    Planned,
    compute,
    plan_and_config,
    program,
)
from chaos.model.broker import ModelBroker
from chaos.model.checkpoint import Checkpoint
from chaos.model.client import IdempotentProducer, ModelLog, ModelTransaction
from chaos.model.network import PromptConnection, SimulatedConnection
from chaos.model.scheduler import Process
from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.brokers.sessions import Broker
from headrace.clients.reset import forget_application
from headrace.errors import CheckpointError, LeadershipLostError, StreamsError
from headrace.home import ApplicationHome
from headrace.runtime.checkpoint.checks import check_checkpoint
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.checkpoint.markers import commit_sentinel, renew_sentinel
from headrace.runtime.internal_topics import ensure_marker_topic, ensure_topic
from headrace.runtime.output.batch_writer import BatchWriter
from headrace.runtime.planning.startup import prepare
from headrace.runtime.program import Program, make_program
from headrace.topology.naming import leader_name, transactional_id

if TYPE_CHECKING:
    from chaos.model.simulation import Simulation

ATTEMPTS = 4
"""How often Spark runs a task before it gives the query up."""
_LEADER = TopicPartition(leader_name(APPLICATION), 0)


class Forgetting(Protocol):
    """The steps of `KafkaStreams.clean_up`."""

    def __call__(self, log: TopicLog, home: ApplicationHome, /) -> None: ...


@dataclass(frozen=True)
class Build:
    """The components of the application; a broken build replaces one of them."""

    writer: type[BatchWriter] = BatchWriter
    transactions: type[ModelTransaction] = ModelTransaction
    producers: type[IdempotentProducer] = IdempotentProducer
    """Write outside of transactions."""
    guarantee: Guarantee = "exactly_once_v2"
    start: tuple[str, ...] = ("lead", "make_topics", "fence_producers")
    """The steps of a driver before its query starts."""
    forget: Forgetting = forget_application
    """Cleans up."""
    unfinished: int = 0
    """How many sink partitions may be missing when a batch is committed."""

    @property
    def checks_checkpoint(self) -> bool:
        """Return whether a start looks at its checkpoint; else only the sink does."""
        return "prepare" in self.start


CHECKED = Build(start=("lead", "prepare", "check_lead", "check_checkpoint", "commit_sentinel"))
"""A build that starts as the runner does. The other one shows that the sink needs no such help."""


class Driver:
    """One process that runs the application, from taking the lead until it ends."""

    def __init__(self, simulation: Simulation, number: int, checkpoint: Checkpoint) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._checkpoint = checkpoint
        self._build = simulation.build
        self.name = f"driver-{number}"
        self._news: list[tuple[int, StreamsError | None]] = []
        self._listens: Callable[[], None] | None = None
        self._batch: Planned | None = None
        self._is_new = False
        """Whether the batch was planned by the query that runs it."""
        self._attempts = 0
        self._layout: CheckpointLayout | None = None
        self.leader_epoch = 0
        self.outcome: StreamsError | None = None
        """Why it ended by itself, if it did not finish."""
        self.process = Process(self._scheduler, self.name, self._run)

    def _run(self, process: Process) -> None:
        self.process = process
        self._log = _LeadersLog(self._simulation, self, process)
        try:
            for step in self._build.start:
                getattr(self, step)()
            self.program = self._make_program()
            self._simulation.has_started(self)
            self._run_queries()
        except StreamsError as error:
            self._scheduler.say(self.name, f"ends: {type(error).__name__}: {error}")
            self.outcome = error
        else:
            self._simulation.has_finished(self._checkpoint)

    def lead(self) -> None:
        """Take the next leader epoch, as the leading member of the group."""
        ensure_topic(self._topics, _LEADER.topic, 1)
        found = self._log.committed_offsets(_LEADER.topic, [_LEADER])
        # The first is a time, so no leader epoch repeats.
        first = OffsetAndMetadata(self._scheduler.now)
        self.leader_epoch = found.get(_LEADER, first).offset + 1
        self._log.client.ask(
            ModelBroker.offset_commit,
            group=_LEADER.topic,
            offsets={_LEADER: OffsetAndMetadata(self.leader_epoch)},
            member=self.name,
        )

    def make_topics(self) -> None:
        """Create the marker topic if it does not exist."""
        ensure_marker_topic(self._topics, APPLICATION, TASKS)

    def fence_producers(self) -> None:
        """Take over every transactional id there can be, past and present."""
        self._log.fence_producers(transactional_id(APPLICATION, n) for n in range(MOST_SINKS))

    def prepare(self) -> None:
        """Find the layout and the topics of the checkpoint, or create them."""
        plan, config = plan_and_config(self._build.guarantee)
        sinks = self._simulation.sinks
        self._layout, _ = prepare(
            plan, config, self._topics, self._checkpoint.opened, lambda _tasks: sinks
        )

    def check_lead(self) -> None:
        """Stop if another driver leads."""
        found = self._log.committed_offsets(_LEADER.topic, [_LEADER])
        if found.get(_LEADER, OffsetAndMetadata(0)).offset != self.leader_epoch:
            raise LeadershipLostError(APPLICATION)

    def check_checkpoint(self) -> None:
        """Refuse a checkpoint that is older than the written batches."""
        assert self._layout is not None, "prepared"
        _, config = plan_and_config(self._build.guarantee)
        check_checkpoint(config, self._topics, self._layout, self._checkpoint.opened)

    def check_without_sentinel(self) -> None:
        """Do the same for a checkpoint without a sentinel."""
        assert self._layout is not None, "prepared"
        layout = self._layout
        self._layout = msgspec.structs.replace(layout, marker_topic_id="")
        self.check_checkpoint()
        self._layout = layout

    def commit_sentinel(self) -> None:
        """Write the marker topic's id to the checkpoint, and commit the sentinel."""
        assert self._layout is not None, "prepared"
        _, config = plan_and_config(self._build.guarantee)
        checkpoint = self._checkpoint.opened
        commit_sentinel(config, self._topics, self._layout, checkpoint, self.leader_epoch)

    @property
    def _topics(self) -> TopicLog:
        return cast(TopicLog, self._log)

    def _make_program(self) -> Program:
        if self._layout is None:
            return program(self.leader_epoch, self._build.guarantee)
        return make_program(
            *plan_and_config(self._build.guarantee),
            self._layout,
            partition_counts={},
            run_directory="",
            leader_epoch=self.leader_epoch,
        )

    def _run_queries(self) -> None:
        """Run the query, again after it failed, until all batches are written."""
        failures = 0
        while True:
            try:
                self._run_query()
            except (LeadershipLostError, CheckpointError):
                raise
            except StreamsError as error:
                self._scheduler.say(self.name, f"restarts its query: {error}")
                failures += 1
                if failures == 5:
                    raise
                self._sleep(20, 200)
            else:
                return

    def _run_query(self) -> None:
        checkpoint = self._checkpoint
        checkpoint.begin()
        while (number := checkpoint.committed) < self._simulation.batches:
            self.check_lead()
            self._is_new = number == len(checkpoint.planned)
            if self._is_new:
                self._commit_progress()
                batch = checkpoint.replanned or self._compute(number)
                self._sleep(1, 5)
                checkpoint.plan(batch)
                self._simulation.operator.has_planned(batch)
                self._scheduler.say(self.name, f"plans batch {number}: {batch.sinks}")
            self._sleep(1, 5)
            self._run_batch(checkpoint.planned[number])
            self._sleep(1, 5)
            checkpoint.commit(number)
            self._scheduler.say(self.name, f"commits batch {number}")
            if checkpoint.replanned is not None:
                return
            self._sleep(1, 5)

    def _commit_progress(self) -> None:
        """Commit how far the application has come, as the planner does between batches."""
        if self._layout is None:
            return
        if self._scheduler.random.random() < 0.5:  # once a minute
            renew_sentinel(APPLICATION, self._topics, self._checkpoint.opened, self.leader_epoch)
        done = self._checkpoint.end
        if done.clock:
            offsets = {
                TopicPartition(topic, partition): OffsetAndMetadata(offset, OWN_OFFSETS)
                for topic, read in done.offsets.items()
                for partition, offset in enumerate(read)
            }
            self._log.commit_offsets(APPLICATION, offsets)

    def _compute(self, number: int) -> Planned:
        return compute(
            self._scheduler.random,
            self._checkpoint.query,
            number,
            self._checkpoint.end,
            sinks=self._layout.shuffle_partitions if self._layout else self._simulation.sinks,
            refusals=self._simulation.refusals,
        )

    def _run_batch(self, batch: Planned) -> None:
        """Run attempts until each sink partition has written."""
        left, failures = set(batch.sinks), dict.fromkeys(batch.sinks, 0)
        self._batch = batch
        self._tried: Counter[int] = Counter()
        self._news.clear()
        for sink in batch.sinks:
            self._start_attempt(batch, sink)
        while len(left) > self._build.unfinished:
            news = self._next_news()
            if news is None:
                for sink in sorted(
                    left
                ):  # no answer for that long: Spark counts the task as lost and runs it elsewhere
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
        self._attempt(batch, sink)
        if self._scheduler.random.random() < self._simulation.duplicates:
            self._attempt(batch, sink, " twin")

    def _attempt(self, batch: Planned, sink: int, note: str = "") -> None:
        self._attempts += 1
        name = f"{self.name}.{self._attempts} b{batch.number} s{sink}{note}"
        Attempt(self._simulation, name, self, batch, sink, self._tried[sink], is_new=self._is_new)
        self._tried[sink] += 1

    def has_tried_again(self, batch: Planned, sink: int) -> bool:
        """Return whether an attempt at a batch that was planned here was not the only one."""
        return self._batch is not batch or not self._is_new or self._tried[sink] > 1

    def note_end(self, batch: Planned, sink: int, error: StreamsError | None) -> None:
        """Take the outcome of an attempt; ignore attempts at an earlier batch."""
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


class _LeadersLog(ModelLog):
    """The log of a driver. Its commits are not fenced, so it commits only while it leads."""

    def __init__(self, simulation: Simulation, driver: Driver, process: Process) -> None:
        super().__init__(SimulatedConnection(simulation.network, process))
        leads = partial(simulation.leads, driver)
        self._committer = ModelLog(PromptConnection(simulation.network, process, leads))

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        self._committer.commit_offsets(group, offsets)


class Attempt:
    """One attempt at what a sink partition has of a batch, in a worker of its own."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        driver: Driver,
        batch: Planned,
        sink: int,
        number: int,
        *,
        is_new: bool,
    ) -> None:
        self._simulation = simulation
        self.driver = driver
        self._batch = batch
        self._sink = sink
        self._number = number
        self._is_new = is_new
        # The driver notices when a worker is gone.
        gone = StreamsError("The worker is gone.")
        self.process = Process(simulation.scheduler, name, self._run, partial(self._send_end, gone))
        simulation.attempts.append(self)
        simulation.tries[batch.query, batch.number, sink] += 1

    @property
    def is_outlived(self) -> bool:
        """Return whether what it is at may have been done by another attempt."""
        return self.driver.has_tried_again(self._batch, self._sink)

    def _run(self, process: Process) -> None:
        simulation = self._simulation
        scheduler, build = simulation.scheduler, simulation.build
        error: StreamsError | None = None
        try:
            process.sleep(scheduler.random.randint(1, 20))
            simulation.network.strike(process)
            connection = SimulatedConnection(simulation.network, process)
            writer = build.writer(
                self.driver.program,
                cast(Broker, ModelLog(connection, build.transactions, build.producers)),
                partition=self._sink,
                batch=self._batch.number,
                query=self._batch.query,
                attempt=self._number,
            )
            writer.write(self._batch.payloads(self._sink, is_new=self._is_new))
        except StreamsError as failure:
            error = failure
        said = "has written" if error is None else f"fails: {type(error).__name__}: {error}"
        scheduler.say(process.name, said)
        self._send_end(error)

    def _send_end(self, error: StreamsError | None) -> None:
        driver = self.driver
        delay = self._simulation.scheduler.random.randint(1, 10)
        self._simulation.scheduler.after(
            delay, partial(driver.note_end, self._batch, self._sink, error)
        )
