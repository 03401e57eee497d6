"""The operator of the simulated application: resets, copies of checkpoints, and accidents."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

from chaos.model.batches import APPLICATION, MOST_SINKS, TASKS, Planned
from chaos.model.broker import ModelBroker
from chaos.model.checkpoint import Checkpoint
from chaos.model.client import ModelLog
from chaos.model.network import Network, PromptConnection, Request
from chaos.model.scheduler import Process
from headrace.brokers.log import TopicLog, TopicPartition
from headrace.clients.reset import execute_reset, plan_reset
from headrace.errors import CheckpointError, StreamsError
from headrace.home import ApplicationHome
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.topology.naming import markers_name

if TYPE_CHECKING:
    from chaos.model.simulation import Simulation

Scenario: TypeAlias = Literal["any", "reset", "clean-up", "restore", "foreign", "loss"]
"""The scenarios: an application is reset, or cleaned up after a batch or more; an older copy
of its checkpoint is restored, or one from before a reset; its markers are lost; or any of that, or
nothing."""

_EPOCHS = markers_name(APPLICATION)
_STEPS = (ModelBroker.delete_group, ModelBroker.delete_topic, ModelBroker.offset_commit)
"""The steps of a reset, in order."""
_Record: TypeAlias = tuple[int, TopicPartition, bytes]


class Operator:
    """Decides which checkpoint a driver finds, and does harm.

    Args:
        simulation: The simulation that it is part of.
        scenario: The scenario beside the faults.
        folder: Where checkpoints are.
    """

    def __init__(self, simulation: Simulation, scenario: Scenario, folder: Path) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._random = simulation.scheduler.random
        self._build = simulation.build
        self._folder = folder
        self._folders = 0
        random = self._random.random
        self._cleans = scenario == "clean-up"
        self._may_reset = scenario in ("reset", "clean-up", "foreign") or random() < 0.4
        self._may_restore = scenario == "restore" or random() < 0.2
        self._may_confuse = self._may_lose = False
        self._deaths = 0
        if scenario == "loss":
            self._may_reset = self._may_restore = False  # they would be lost with their query
        if not simulation.is_exact:
            # Without markers an older copy, or a batch written before a reset, cannot be detected.
            self._may_reset = self._may_restore = False
        elif self._build.checks_checkpoint:
            self._may_confuse = scenario == "foreign" or random() < 0.2
            self._may_lose = scenario == "loss" or random() < 0.3
            self._deaths = 2 if self._cleans else self._random.choice((0, 1, 2))
        self._lost_in = self._random.randrange(simulation.batches)
        """The batch in which markers are lost."""
        self.lost: set[str] = set()
        """Why markers of this life are gone: the loss of their group or topic, half a reset."""
        self.lives: list[Checkpoint] = []
        """The newest checkpoint of each life, from one reset to the next."""
        self.cut_off: defaultdict[str, list[_Record]] = defaultdict(list)
        """For each query what was there of a batch that a reset left unfinished."""
        self._layout: bytes | None = None
        """That of the life which ended last."""
        self.processes: list[Process] = []
        self.refusals: list[str] = []
        """Why drivers have refused what they found."""
        self._begin_life()

    def _begin_life(self) -> None:
        query, has_files = f"q{len(self.lives)}", self._build.checks_checkpoint
        self.lives.append(Checkpoint(query, self._new_folder(), has_files=has_files))
        self.checkpoint = self.lives[-1]
        """The checkpoint that a driver finds."""
        self.lost = set()

    def _new_folder(self) -> Path:
        self._folders += 1
        return self._folder / str(self._folders)

    def act(self) -> bool:
        """Act while no driver leads; return whether a driver is started after it."""
        if self._may_reset and not (self._cleans and self.lives[-1].committed == 0):
            self._start_over()
            return True
        if self.checkpoint is self.lives[-1]:
            if self._may_restore:
                self._restore_older_copy()
            elif self._may_confuse:
                self._confuse()
        return False

    def react(self, refusal: CheckpointError) -> bool:
        """Act on a refusal; return whether a driver is started after it."""
        self.refusals.append(str(refusal))
        if self.checkpoint is not self.lives[-1]:
            self._say("restores the newest checkpoint")
            self.checkpoint = self.lives[-1]
            self._may_restore = self._may_confuse = False
            return False
        if not self.lost:
            self._simulation.fail(f"the newest checkpoint is refused: {refusal}")
        if self.lost == {"group"} and not self.checkpoint.is_unfinished:
            self._simulation.fail(f"a checkpoint that needs no markers is refused: {refusal}")
        self._start_over()
        return True

    def has_started(self) -> None:
        """Check a checkpoint that a driver has accepted."""
        newest, found = self.lives[-1], self.checkpoint
        if found is newest or not self._build.checks_checkpoint:
            return
        if found.query != newest.query:
            self._simulation.fail("a foreign checkpoint was started")
        written = set(self._simulation.found())
        for batch in newest.planned[len(found.planned) :]:
            if any(written.intersection(batch.visible(sink)) for sink in batch.sinks):
                self._simulation.fail("an older copy of the checkpoint was started")
        # It cannot be distinguished from the newest one, and need not be.
        self.lives[-1] = found

    def has_planned(self, batch: Planned) -> None:
        """Lose markers soon, if this is the batch for it."""
        if self._may_lose and batch.number == self._lost_in:
            self._may_lose = False
            self._scheduler.after(self._random.randint(1, 150), self._lose_markers)

    def _lose_markers(self) -> None:
        if self.checkpoint is not self.lives[-1]:
            return  # an older copy whose markers are gone cannot be detected
        for attempt in self._simulation.attempts:
            if attempt.is_outlived:
                attempt.process.kill()  # it does not detect their loss: docs/reliability.md
        if self._random.random() < 0.5:
            self._simulation.drivers[-1].process.kill()  # it stands still for so long
        broker, kind = self._simulation.broker, self._random.choice(("deleted", "expired", "topic"))
        if kind == "topic" and _EPOCHS in broker.counts:
            self.lost.add("topic")
            self._say("deletes the topic of markers")
            broker.delete_topic(topic=_EPOCHS)
            if self._random.random() < 0.7:
                self._scheduler.after(self._random.randint(0, 50), self._make_topic_again)
            return
        self.lost.add("group")
        self._may_restore = False
        self._say(f"lets markers be {kind}")
        if kind == "expired":
            before = self._random.randint(0, broker.group(_EPOCHS).written + 1)
            broker.expire_offsets(group=_EPOCHS, before=before)
        else:
            broker.delete_group(group=_EPOCHS)

    def _make_topic_again(self) -> None:
        if _EPOCHS not in self._simulation.broker.counts:
            self._say("makes the topic of markers again")
            self._simulation.broker.create_topic(_EPOCHS, TASKS)

    def _start_over(self) -> None:
        """Reset the application or clean it up, until that is done."""
        self._may_reset = self._may_restore = False
        self.lives[-1].is_gone = True
        self._layout = self.lives[-1].layout or self._layout
        cleans = self._cleans or self._random.random() < 0.5
        self._say("cleans up" if cleans else "resets the application")
        body = partial(self._forget, cleans=cleans)
        self.processes.append(Process(self._scheduler, "operator", body, self._is_interrupted))

    def _forget(self, process: Process, *, cleans: bool) -> None:
        log = cast(TopicLog, ModelLog(_FragileConnection(self._simulation.network, process, self)))
        forget = self._build.forget if cleans else _reset
        try:
            forget(log, self.lives[-1].home)
        except StreamsError as error:
            self._say(f"fails: {error}")
            self._is_interrupted()
            return
        self._note_cut_off()
        self._begin_life()
        self._simulation.sinks = self._random.randint(1, MOST_SINKS)
        self._scheduler.after(self._random.randint(1, 300), self._simulation.start_driver)

    def _note_cut_off(self) -> None:
        """Remember what the life that ends has written of its last batch."""
        last, found = self.lives[-1], set(self._simulation.found())
        for batch in last.planned[last.committed :]:
            for sink in batch.sinks:
                if not found.isdisjoint(batch.visible(sink)):
                    self.cut_off[last.query] += batch.visible(sink)

    def dies(self) -> bool:
        """Return whether it dies now, in the middle of a reset."""
        if self._deaths and self._random.random() < 0.3:
            self._deaths -= 1
            return True
        return False

    def _is_interrupted(self) -> None:
        self._scheduler.after(self._random.randint(1, 50), self._reset_or_restore)

    def _reset_or_restore(self) -> None:
        """Reset once more, or put a copy of the checkpoint back that was to be forgotten."""
        if not self._build.checks_checkpoint or not self._layout or self._random.random() < 0.5:
            self._start_over()
            return
        self.lost.add("reset")
        self._say("restores the checkpoint that was to be forgotten")
        copy = self.lives[-1].copied(self._new_folder(), self._layout)
        self.checkpoint = self.lives[-1] = copy
        if self.lost == {"reset"}:
            self._restore_older_copy()
        self._simulation.start_driver()

    def _restore_older_copy(self) -> None:
        newest, layout = self.lives[-1], self.lives[-1].layout or b""
        planned = committed = len(newest.planned) - 1
        other = newest.other_last_batch()
        if self._build.checks_checkpoint:
            other, planned = None, self._random.randint(0, len(newest.planned))
            committed = self._random.choice((planned, planned - 1))
        elif other is None:
            return
        if layout or not self._build.checks_checkpoint:
            self._say(f"restores an older copy of the checkpoint: {planned}, {committed}")
            self.checkpoint = newest.copied(self._new_folder(), layout, planned, committed)
            self.checkpoint.replanned = other

    def _confuse(self) -> None:
        """Put a checkpoint of an earlier life in place, or of another application."""
        if len(self.lives) > 1 and self._layout and _decoded(self._layout).marker_topic_id:
            self._say("restores the checkpoint of an earlier life")
            self.checkpoint = self.lives[-2].copied(self._new_folder(), self._layout)
        elif layout := self.lives[-1].layout:
            self._say("restores the checkpoint of another application")
            other = _decoded(layout)
            other.application_id = "other"
            foreign = Checkpoint("foreign", self._new_folder())
            self.checkpoint = foreign.copied(foreign.state_dir, msgspec.json.encode(other))

    def _say(self, what: str) -> None:
        self._scheduler.say("operator", what)


def _reset(log: TopicLog, home: ApplicationHome) -> None:
    execute_reset(log, plan_reset(log, home))


def _decoded(layout: bytes) -> CheckpointLayout:
    return msgspec.json.decode(layout, type=CheckpointLayout)


class _FragileConnection(PromptConnection):
    """The connection of an operator who may die before each step."""

    def __init__(self, network: Network, process: Process, operator: Operator) -> None:
        super().__init__(network, process)
        self._operator = operator

    def call(self, request: Request, /) -> Any:
        if request.func in _STEPS and self._operator.dies():
            self._process.die()
        return super().call(request)
