"""One run of the application against the model, decided by a seed, and what must be true after."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Literal, NoReturn, TypeAlias

import msgspec

from chaos.model.application import CHECKED, Build, Driver
from chaos.model.batches import (
    APPLICATION,
    LETTERS,
    LIMIT,
    MOST_SINKS,
    TASKS,
    TOPICS,
    Checkpoint,
    Planned,
)
from chaos.model.broker import ModelBroker, RequestRefusedError, State
from chaos.model.network import Network, Weather
from chaos.model.scheduler import Process, Scheduler
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.errors import CheckpointError
from headrace.spark.planning.markers import Marker
from headrace.topology.naming import epochs_name, leader_name

Scenario: TypeAlias = Literal["any", "reset", "restore"]
"""Whether an application is reset, or an older copy of its checkpoint restored."""

_SESSION_TIMEOUT = 300
_MOST_STEPS = 30_000
_EPOCHS, _LEADER = epochs_name(APPLICATION), leader_name(APPLICATION)
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
        build: The application; if not told, one of the two that are right.
        scenario: What happens beside the faults; any of it, if not told.
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
        self.broker.create_topic(_EPOCHS, TASKS)
        if not self.build.checks_markers:
            self.broker.offset_commit(group=_EPOCHS, offsets=_FOREIGN)
        random = self.scheduler.random
        self.batches = random.randint(2, 5)
        self.sinks = MOST_SINKS if scenario == "reset" else random.randint(1, MOST_SINKS)
        self.refusals = random.random() < 0.2
        self.duplicates = random.choice((0.0, 0.0, 0.1, 0.5))
        self._may_reset = scenario == "reset" or random.random() < 0.4
        self._may_restore = scenario == "restore" or random.random() < 0.2
        self._once = self.build.guarantee == "exactly_once_v2"
        if not self._once:
            # Without markers nobody knows an older copy, or what was written before a reset.
            self._may_reset = self._may_restore = False
        self._hurries = scenario != "any"
        weather = self._weather()
        if self._hurries:
            # Leaders change often, and leave attempts behind.
            weather = replace(weather, killed=0.01, frozen=0.03)
        self.network = Network(self.scheduler, self.broker, weather)
        self.workers: list[tuple[Driver, Process]] = []
        self.attempts: Counter[tuple[str, int, int]] = Counter()
        """How often a sink partition of a batch was tried, by query and numbers."""
        self.repeated = 0
        """How many records are there again, where that is allowed."""
        self.is_finished = False
        self._drivers: list[Driver] = []
        self._queries: list[Checkpoint] = []
        self._cut_off: list[tuple[int, TopicPartition, bytes]] = []
        """What was there of a batch that a reset left unfinished, by task and partition."""
        self._newest: Checkpoint | None = None
        """What an older copy stands in for."""

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
            self._checkpoint = self._new_query()
            self._start_driver()
            self._run_until_nothing_is_due()
            self._check()
        finally:
            self.scheduler.stop()
            for process in self._processes():
                process.clear_away()

    def _processes(self) -> list[Process]:
        drivers = [driver.process for driver in self._drivers]
        return [*drivers, *(process for _, process in self.workers)]

    def _new_query(self) -> Checkpoint:
        self._queries.append(Checkpoint(f"q{len(self._queries)}"))
        return self._queries[-1]

    def has_started(self, driver: Driver) -> None:
        """Hear that a driver leads: what was open before is not any more."""
        if not self._once or driver is not self._drivers[-1]:
            return
        if self.build.checks_markers and self._newest is not None:
            self._fail("an older copy of the checkpoint was started")
        for transactional_id, known in self.broker.transactional.items():
            if known.state is State.ONGOING:
                self._fail(f"a transaction of {transactional_id} is open after a start")

    def has_finished(self, checkpoint: Checkpoint) -> None:
        """Hear that all batches of a checkpoint are written."""
        # Not while an operator has put an older copy in its place, which is to be refused.
        self.is_finished |= checkpoint is self._checkpoint

    def has_planned(self, batch: Planned) -> None:
        """Hear of a batch; once a query has one, nothing more of the query before may appear."""
        if batch.number or batch.query != self._queries[-1].query or len(self._queries) == 1:
            return
        last = self._queries[-2]
        found = list(self._found())
        for unfinished in last.planned[last.committed :]:
            for sink in unfinished.sinks:
                lanes = unfinished.visible(sink)
                if any(lane in found for lane in lanes):
                    self._cut_off += lanes

    def _run_until_nothing_is_due(self) -> None:
        is_over = self.scheduler.run(_MOST_STEPS)
        for process in self._processes():
            if process.error is not None:
                raise process.error
        if not is_over:
            self._fail("it does not come to an end")
        if not self.is_finished:
            self._fail("nobody leads, although not all batches are written")

    def _take_over(self) -> None:
        """Let another driver lead, after whatever an operator does meanwhile."""
        if self._hurries or self.scheduler.random.random() < 0.3:
            if self._may_reset:
                self._reset()
                return
            if self._may_restore:
                self._restore_older_copy()
        self._start_driver()

    def _start_driver(self) -> None:
        if len(self._drivers) > 25 or self.scheduler.now > 15_000:
            self.network.weather = _CALM
        driver = Driver(self, len(self._drivers), self._checkpoint)
        self.broker.group(_LEADER).member = f"driver-{len(self._drivers)}"
        self._drivers.append(driver)
        self._watch(driver)

    def _watch(self, driver: Driver) -> None:
        """Let another driver take over from one that is gone, or seems to be."""

        def look() -> None:
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
        if isinstance(driver.outcome, CheckpointError):
            if self._newest is None:
                self._fail(f"the newest checkpoint is refused: {driver.outcome}")
            self.scheduler.say("operator", "restores the newest checkpoint")
            self._checkpoint, self._newest, self._may_restore = self._newest, None, False
        for owner, worker in self.workers:
            # A worker sees that its driver is gone, unless it is stopped or cut off itself.
            if owner is driver and worker.is_alive and not worker.is_frozen:
                if random.random() < 0.5:
                    worker.kill()
                elif random.random() < 0.5:
                    worker.freeze(random.randint(50, 2500))
        self._take_over()

    def _reset(self) -> None:
        """Forget the query; its markers last, when nothing can be written any more."""
        self._may_reset = self._may_restore = False
        self.scheduler.say("operator", "resets the application")
        self._newest = None
        self._queries[-1].is_gone = True
        self._checkpoint = self._new_query()
        self.sinks = self.scheduler.random.randint(1, MOST_SINKS)
        self.broker.delete_group(group=_LEADER)
        if self.build.reset_ends_transactions:
            self._end_transactions(list(self.broker.transactional))
        else:
            self._forget_markers()

    def _end_transactions(self, left: list[str]) -> None:
        while left:
            request = partial(ModelBroker.init_producer_id, transactional_id=left[0])
            if isinstance(self.network.apply("operator", request), RequestRefusedError):
                self.scheduler.after(5, partial(self._end_transactions, left))
                return
            left.pop(0)
        self._forget_markers()

    def _forget_markers(self) -> None:
        self.broker.delete_group(group=_EPOCHS)
        self.scheduler.after(self.scheduler.random.randint(1, 300), self._start_driver)

    def _restore_older_copy(self) -> None:
        copy = None if self._newest is not None else self._checkpoint.older_copy()
        if copy is not None:
            self.scheduler.say("operator", "restores an older copy of the checkpoint")
            self._newest, self._checkpoint = self._checkpoint, copy

    def _check(self) -> None:
        self._check_nothing_is_open()
        if self._newest is not None:
            self._fail("an older copy of the checkpoint was not refused")
        self._check_records()
        if self._once:
            self._check_markers()

    def _check_nothing_is_open(self) -> None:
        for name, partition in self.broker.partitions.items():
            if partition.stable != len(partition.entries):
                self._fail(f"a transaction on {name} never ended")
        for group, found in self.broker.groups.items():
            if found.pending:
                self._fail(f"offsets of group {group} never became final")
        for transactional_id, known in self.broker.transactional.items():
            if known.state in (State.ONGOING, State.PREPARE_ABORT, State.PREPARE_COMMIT):
                self._fail(f"a transaction of {transactional_id} never ended")

    def _check_records(self) -> None:
        """Compare what each task wrote to each partition with what it should have."""
        expected: list[tuple[int, TopicPartition, bytes]] = []
        for query in self._queries:
            for batch in query.planned[: query.committed]:
                for sink in batch.sinks:
                    expected += batch.visible(sink)
            expected += self._cut_off if query is not self._queries[-1] else []
        found = list(self._found())
        if not self._once:
            self._check_repeated(Counter(found))
            found = list(dict.fromkeys(found))
        want, have = _by_lane(expected), _by_lane(found)
        for lane in sorted({*want, *have}):
            if want[lane] != have[lane]:
                self._fail(
                    f"task {lane[0]} on {lane[1]}: should be {want[lane]}, but is {have[lane]}"
                )

    def _check_repeated(self, found: Counter[tuple[int, TopicPartition, bytes]]) -> None:
        """See that only what was tried again is there again."""
        for batch in self._queries[-1].planned:
            for sink in batch.sinks:
                visible = batch.visible(sink)
                # A batch is written again without each record that is refused.
                refused = sum(name.topic == LETTERS for _, name, _ in visible)
                most = self.attempts[batch.query, batch.number, sink] * (1 + refused)
                for record in visible:
                    self.repeated += max(0, found[record] - 1)
                    if found[record] > most:
                        self._fail(
                            f"{record} is there {found[record]} times, but was tried {most} times"
                        )

    def _found(self) -> Iterator[tuple[int, TopicPartition, bytes]]:
        """Yield task, partition and value of all that was committed."""
        for name, partition in self.broker.partitions.items():
            for entry in partition.entries:
                if entry.visible and entry.record is not None:
                    value = entry.record.value or b""
                    yield int(value.split(b"/")[2]), name, value

    def _check_markers(self) -> None:
        """Compare each task's marker with the last batch it wrote in."""
        last: dict[int, Planned] = {}
        for batch in self._queries[-1].planned:
            for tasks in batch.sinks.values():
                last.update(dict.fromkeys(tasks, batch))
        names = [TopicPartition(_EPOCHS, task) for task in range(TASKS)]
        found = _FOREIGN | self.broker.offset_fetch(group=_EPOCHS, partitions=names)
        for task, batch in last.items():
            marker = found[TopicPartition(_EPOCHS, task)]
            told = msgspec.json.decode(marker.metadata, type=Marker)
            have = marker.offset, told.query, told.digest
            if have != (batch.number + 1, batch.query, batch.digest):
                self._fail(f"the marker of task {task} is {have}, the last batch {batch.number}")

    def _fail(self, what: str) -> NoReturn:
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
