"""One run of the application against the model, decided by a seed, and what must be true after."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import msgspec

from chaos.model.application import CHECKED, Attempt, Build, Driver
from chaos.model.batches import (
    APPLICATION,
    DEAD_LETTERS,
    LIMIT,
    MOST_SINKS,
    TASKS,
    TOPICS,
    Planned,
)
from chaos.model.broker import ModelBroker, State
from chaos.model.checkpoint import Checkpoint
from chaos.model.network import Network, Weather
from chaos.model.operating import Operator, Scenario
from chaos.model.scheduler import Process, Scheduler
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.errors import CheckpointError, CheckpointInUseError
from headrace.runtime.checkpoint.markers import Marker
from headrace.topology.naming import leader_name, markers_name

_SESSION_TIMEOUT = 300
_MOST_STEPS = 30_000
_EPOCHS, _LEADER = markers_name(APPLICATION), leader_name(APPLICATION)
_CALM = Weather()
_FOREIGN = dict.fromkeys(
    [TopicPartition(_EPOCHS, task) for task in range(TASKS)],
    OffsetAndMetadata(1_000, msgspec.json.encode(Marker("foreign", "foreign")).decode()),
)
"""Markers of another query, which say nothing about this one."""


class BrokenPromiseError(AssertionError):
    """Something that must hold does not."""


class Simulation:
    """A run: some batches, faults all along, calm at the end until everything has been delivered.

    Args:
        seed: Decides everything.
        build: The application; if not given, one of the two that are right.
        scenario: The scenario beside the faults; a random one, if not given.
        verifies: As for `ModelBroker`.
        traced: Whether to keep what happened.
    """

    def __init__(
        self,
        seed: int,
        build: Build | None = None,
        scenario: Scenario = "any",
        *,
        verifies: bool = True,
        traced: bool = False,
    ) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed)
        if traced:
            self.scheduler.trace = []
        self.build = build or (CHECKED if seed % 2 else Build())
        self.broker = ModelBroker(verifies=verifies)
        for topic, partitions in TOPICS.items():
            self.broker.create_topic(topic, partitions, LIMIT if topic == "small" else 1 << 20)
        if not self.build.checks_checkpoint:
            self.broker.create_topic(_EPOCHS, TASKS)
            self.broker.offset_commit(group=_EPOCHS, offsets=_FOREIGN)
        random = self.scheduler.random
        self.batches = random.randint(2, 5)
        self.sinks = MOST_SINKS if scenario == "reset" else random.randint(1, MOST_SINKS)
        self.refusals = random.random() < 0.2
        self.duplicates = random.choice((0.0, 0.0, 0.1, 0.5))
        self.is_exact = self.build.guarantee == "exactly_once_v2"
        self._hurries = scenario != "any"
        weather = self._weather()
        if self._hurries:
            # Leaders change often, and leave attempts behind.
            frozen = 0.005 if self.build.checks_checkpoint else 0.03  # its start takes longer
            weather = replace(weather, killed=0.01, frozen=frozen)
        self.network = Network(self.scheduler, self.broker, weather)
        self.attempts: list[Attempt] = []
        self.tries: Counter[tuple[str, int, int]] = Counter()
        """How often a sink partition of a batch was tried, by query and numbers."""
        self.repeated = 0
        """How many records are there again, where that is allowed."""
        self.is_finished = False
        self.drivers: list[Driver] = []
        self._folder = TemporaryDirectory()
        self.operator = Operator(self, scenario, Path(self._folder.name))

    def _weather(self) -> Weather:
        """Return what goes wrong in this run: each kind often, seldom or never."""
        random = self.scheduler.random
        rates = (0.0, 0.0, 0.01, 0.04, 0.12)
        return Weather(
            delayed=random.choice(rates),
            doubled=random.choice(rates),
            lost=random.choice(rates) / 2,
            unanswered=random.choice(rates),
            cut=random.choice(rates) / 4,
            killed=random.choice(rates) / 4,
            frozen=random.choice(rates) / 2,
        )

    def run(self) -> None:
        """Run to the end, and check.

        Raises:
            BrokenPromiseError: Something was lost, doubled, torn, left open or not finished.
        """
        try:
            self.start_driver()
            self._run_until_nothing_is_due()
            self._check()
        finally:
            self.scheduler.stop()
            for process in self._processes():
                process.clear_away()
            self._folder.cleanup()

    def _processes(self) -> list[Process]:
        drivers = [driver.process for driver in self.drivers]
        return [*drivers, *(attempt.process for attempt in self.attempts), *self.operator.processes]

    def leads(self, driver: Driver) -> bool:
        """Return whether a driver is the one that may commit."""
        leader_epochs = self.broker.offset_fetch(group=_LEADER, partitions=None).values()
        is_member = self.broker.group(_LEADER).member == driver.name
        return is_member and [each.offset for each in leader_epochs] == [driver.leader_epoch]

    def has_started(self, driver: Driver) -> None:
        """Check, when a driver leads, that no earlier transaction is open."""
        if not self.is_exact or driver is not self.drivers[-1]:
            return
        self.operator.has_started()
        for transactional_id, known in self.broker.transactional.items():
            if known.state is State.ONGOING:
                self.fail(f"a transaction of {transactional_id} is open after a start")

    def has_finished(self, checkpoint: Checkpoint) -> None:
        """Note that all batches of a checkpoint are written."""
        # Not while an operator has put an older copy in its place, which is to be refused.
        self.is_finished |= checkpoint is self.operator.checkpoint and not checkpoint.is_gone

    def _run_until_nothing_is_due(self) -> None:
        is_over = self.scheduler.run(_MOST_STEPS)
        for process in self._processes():
            if process.error is not None:
                raise process.error
        if not is_over:
            self.fail("it does not come to an end")
        if not self.is_finished:
            self.fail("nobody leads, although not all batches are written")

    def _take_over(self) -> None:
        """Start another driver as leader, after whatever an operator does meanwhile."""
        hurries = self._hurries or self.scheduler.random.random() < 0.3
        if not (hurries and self.operator.act()):
            self.start_driver()

    def start_driver(self) -> None:
        """Start a driver as leader with the checkpoint that the operator has for it."""
        if len(self.drivers) > 25 or self.scheduler.now > 15_000:
            self.network.weather = _CALM
        driver = Driver(self, len(self.drivers), self.operator.checkpoint)
        self.broker.group(_LEADER).member = driver.name
        self.drivers.append(driver)
        self._watch(driver)

    def _watch(self, driver: Driver) -> None:
        """Start another driver in place of one that is gone, or seems to be."""

        def look() -> None:
            if driver.process.error is not None:
                raise driver.process.error
            if self.is_finished:
                self.network.weather = _CALM
            elif not driver.process.is_alive:
                self._succeed(driver)
            elif driver.process.is_frozen and frozen[0] >= _SESSION_TIMEOUT // 50:
                self.scheduler.say("broker", "puts the silent leader out of its group")
                self._take_over()
            else:
                frozen[0] = frozen[0] + 1 if driver.process.is_frozen else 0
                self.scheduler.after(50, look)

        frozen = [0]
        self.scheduler.after(50, look)

    def _succeed(self, driver: Driver) -> None:
        random = self.scheduler.random
        for attempt in self.attempts:
            worker = attempt.process
            # A worker sees that its driver is gone, unless it is stopped or cut off itself.
            if attempt.driver is driver and worker.is_alive and not worker.is_frozen:
                if random.random() < 0.5:
                    worker.kill()
                elif random.random() < 0.5:
                    worker.freeze(random.randint(50, 2500))
        outcome = driver.outcome
        # One that another process has just begun can be used when that is gone.
        if isinstance(outcome, CheckpointError) and not isinstance(outcome, CheckpointInUseError):
            if not self.operator.react(outcome):
                self.start_driver()
        else:
            self._take_over()

    def _check(self) -> None:
        self._check_nothing_is_open()
        if self.operator.checkpoint is not self.operator.lives[-1]:
            self.fail("a checkpoint that is not the newest one was not refused")
        self._check_records()
        if self.is_exact:
            self._check_markers()

    def _check_nothing_is_open(self) -> None:
        for name, partition in self.broker.partitions.items():
            if partition.stable != len(partition.entries):
                self.fail(f"a transaction on {name} never ended")
        for group, found in self.broker.groups.items():
            if found.pending:
                self.fail(f"offsets of group {group} never became final")
        for transactional_id, known in self.broker.transactional.items():
            if known.state in (State.ONGOING, State.PREPARE_ABORT, State.PREPARE_COMMIT):
                self.fail(f"a transaction of {transactional_id} never ended")

    def _check_records(self) -> None:
        """Compare what each task wrote to each partition with what it should have."""
        expected: list[tuple[int, TopicPartition, bytes]] = []
        for life in self.operator.lives:
            for batch in life.planned[: life.committed]:
                for sink in batch.sinks:
                    expected += batch.visible(sink)
            expected += self.operator.cut_off[life.query]
        found = list(self.found())
        if not self.is_exact:
            self._check_repeated(Counter(found))
            found = list(dict.fromkeys(found))
        want, have = _by_lane(expected), _by_lane(found)
        for lane in sorted({*want, *have}):
            if want[lane] != have[lane]:
                self.fail(
                    f"task {lane[0]} on {lane[1]}: should be {want[lane]}, but is {have[lane]}"
                )

    def _check_repeated(self, found: Counter[tuple[int, TopicPartition, bytes]]) -> None:
        """Check that only retried batches repeat records."""
        for batch in self.operator.lives[-1].planned:
            for sink in batch.sinks:
                visible = batch.visible(sink)
                # A batch is written again without each record that is refused.
                refused = sum(name.topic == DEAD_LETTERS for _, name, _ in visible)
                most = self.tries[batch.query, batch.number, sink] * (1 + refused)
                for record in visible:
                    self.repeated += max(0, found[record] - 1)
                    if found[record] > most:
                        self.fail(
                            f"{record} is there {found[record]} times, but was tried {most} times"
                        )

    def found(self) -> Iterator[tuple[int, TopicPartition, bytes]]:
        """Yield task, partition and value of all that was committed."""
        for name, partition in self.broker.partitions.items():
            for entry in partition.entries:
                if entry.visible and entry.record is not None:
                    value = entry.record.value or b""
                    yield int(value.split(b"/")[2]), name, value

    def _check_markers(self) -> None:
        """Compare each task's marker with the last batch it wrote in."""
        last: dict[int, Planned] = {}
        for batch in self.operator.lives[-1].planned:
            for tasks in batch.sinks.values():
                last.update(dict.fromkeys(tasks, batch))
        names = [TopicPartition(_EPOCHS, task) for task in range(TASKS)]
        found = self.broker.offset_fetch(group=_EPOCHS, partitions=names)
        for task, batch in last.items():
            if self.operator.lost and TopicPartition(_EPOCHS, task) not in found:
                continue
            marker = (_FOREIGN | found)[TopicPartition(_EPOCHS, task)]
            decoded = msgspec.json.decode(marker.metadata, type=Marker)
            have = marker.offset, decoded.query, decoded.digest
            if have != (batch.number + 1, batch.query, batch.digest):
                self.fail(f"the marker of task {task} is {have}, the last batch {batch.number}")

    def fail(self, what: str) -> NoReturn:
        """Raise an error that a promise is broken."""
        msg = f"Seed {self.seed}: {what}."
        raise BrokenPromiseError(msg)


def _by_lane(
    records: Iterable[tuple[int, TopicPartition, bytes]],
) -> defaultdict[tuple[int, TopicPartition], list[bytes]]:
    lanes: defaultdict[tuple[int, TopicPartition], list[bytes]] = defaultdict(list)
    for task, name, value in records:
        lanes[task, name].append(value)
    return lanes


def run(seed: int, build: Build | None = None) -> int:
    """Run a seed, and return how many records are there again, where that is allowed.

    Raises:
        BrokenPromiseError: It fails; the message says how to repeat it, and what happened.
    """
    simulation = Simulation(seed, build)
    try:
        simulation.run()
    except BrokenPromiseError as error:
        again = Simulation(seed, build, traced=True)
        try:
            again.run()
        except BrokenPromiseError:
            trace = "\n".join(again.scheduler.trace or ())
            msg = f"{error} Repeat it with `python -m chaos.model --seed {seed}`.\n{trace}"
            raise BrokenPromiseError(msg) from None
        msg = f"{error} It is not the same when repeated: something is left to chance."
        raise BrokenPromiseError(msg) from error
    return simulation.repeated
