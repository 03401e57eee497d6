"""An instance of the model: the real applier and copy, over a database in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeAlias

from chaos.queries_model.broker import ModelBroker
from chaos.queries_model.stores import LAYOUT, PARTITIONS, SHARDS, SNAPSHOTS
from chaos.queries_model.transfers import Transfers
from headrace.brokers.log import TopicPartition
from headrace.queries.copy.actions import (
    Action,
    AskEnds,
    AskTopicIds,
    Change,
    Changes,
    Read,
    ReadSnapshots,
    Show,
    Stop,
)
from headrace.queries.copy.applier import Applier
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.database import WriteBatch
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.local_copy import LocalCopy
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.copy.views import ShownSnapshot
from headrace.runtime.snapshots import decode_snapshot

DELETE_RETENTION_MS = 20_000
WRITTEN_AT_ONCE = 2
LIMITS = ApplierLimits(DELETE_RETENTION_MS, waiting_bytes=60, part_bytes=8)

Fetched: TypeAlias = tuple[int, list[Change] | int]
"""The number of the reading, with records or the end of the partition."""


class CrashError(Exception):
    """The process ends between two writes."""


class CrashingDatabase(MemoryDatabase):
    """A database whose process may end before one of the next writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left: int | None = None
        """How many writes succeed before the end; None: all do."""

    def write(self, batch: WriteBatch) -> None:
        if self.writes_left is not None:
            if not self.writes_left:
                raise CrashError
            self.writes_left -= 1
        super().write(batch)


class Instance:
    """Reads in its own time: what it fetched, and what it asked, arrives later."""

    def __init__(
        self,
        name: str,
        broker: ModelBroker,
        random: Random,
        shards: list[Shard],
        on_show: Callable[[Instance, ShownSnapshot], None],
        *,
        is_exact: bool = True,
    ) -> None:
        self.name, self.shards = name, shards
        self._broker, self._random, self._on_show = broker, random, on_show
        self._limits = LIMITS if is_exact else replace(LIMITS, marker_offsets=0, has_copies=True)
        self._database = CrashingDatabase()
        self.peers: Sequence[Instance] = ()
        """The other instances."""
        self.start(0)

    def start(self, now: int, *, keeps_files: bool = True) -> None:
        """Start, or start again after a crash."""
        if not keeps_files:
            self._database = CrashingDatabase()
        self.now = now
        self._database.writes_left = None
        self.copy = LocalCopy(LAYOUT, self._database, written_at_once=WRITTEN_AT_ONCE)
        self.applier = Applier(LAYOUT, SNAPSHOTS, self.copy.saved(), now, self._limits)
        self.last_shown: dict[Shard, tuple[str, int]] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._readings: dict[TopicPartition, int] = {}
        self._fetched: dict[TopicPartition, deque[Fetched]] = {}
        self._snapshots_position: int | None = None
        self._due: deque[Action] = deque()
        self._answers: list[Callable[[], None]] = []
        new = [shard for shard in self.shards if self.applier.begins_at_nothing(shard)]
        asks = bool(self.peers) and self._random.random() < 0.7
        self._transfers = Transfers(self._random, new if asks else ())
        self._keep()

    def _keep(self) -> None:
        """Keep the shards that wait for no peer."""
        self.applier.keep([each for each in self.shards if each not in self._transfers.waiting])

    def _transfer(self) -> None:
        found = self._transfers.step(self, self.peers, self._database)
        if found is not None and self.applier.begins_at_nothing(found[0]):
            shard, state, entries = found
            state = state.taken_over(self.now)
            self.copy.adopt(shard, state, entries)
            self.applier.adopt(shard, state)
        self._keep()

    def advance_time(self, now: int) -> None:
        """Set the time."""
        self.now = now
        self.applier.tick(now)

    def crash_in_a_write(self) -> None:
        """End the process soon, before a write or inside one that goes in parts."""
        self._database.writes_left = self._random.randrange(5)

    def step(self) -> None:
        """Do one thing, by chance."""
        try:
            self._step()
        except CrashError:
            self.start(self.now)

    def _step(self) -> None:
        self._due.extend(self.applier.take_actions())
        if self._due and self._random.random() < 0.8:
            self._carry_out(self._due.popleft())
        elif self._answers and self._random.random() < 0.5:
            self._answers.pop(self._random.randrange(len(self._answers)))()
        elif self._transfers.waiting and self._random.random() < 0.3:
            self._transfer()
        elif self._random.random() < 0.3:
            self._read_snapshots(self._random.choice((1, 3, 10)))
        elif self._positions:
            name = self._random.choice([*self._positions])
            if self._random.random() < 0.5:
                self._fetch(name, self._random.choice((1, 2, 5)))
            else:
                self._deliver(name)

    def run_until_quiet(self) -> None:
        """Read everything that is there, and do what that leads to."""
        self._database.writes_left = None
        while self._transfers.waiting:
            self._settle()
            self._transfer()
        self._settle()
        self._read_snapshots(100)
        for name in [*self._positions]:
            self._fetch(name, 1_000)
            self._fetch(name, 1_000, is_silent=True)
            while self._fetched[name]:
                self._deliver(name)
        self._settle()

    def _settle(self) -> None:
        while True:
            self._due.extend(self.applier.take_actions())
            if self._due:
                self._carry_out(self._due.popleft())
            elif self._answers:
                self._answers.pop(0)()
            else:
                return

    def _carry_out(self, action: Action) -> None:
        match action:
            case Read(reading, partition, offset):
                self._readings[partition] = reading
                self._positions[partition] = offset
                self._fetched.setdefault(partition, deque())
            case Stop(partition):
                del self._positions[partition]
            case ReadSnapshots():
                self._snapshots_position = -1
            case AskEnds(request, partitions):
                self._ask_ends(request, list(partitions))
            case AskTopicIds(request):
                self._ask_topic_ids(request)
            case _:
                self.copy.carry_out(action, self.now)
                if isinstance(action, Show):
                    shown = next(
                        each for each in self.copy.snapshots if each.record is action.record
                    )
                    self._on_show(self, shown)

    def _ask_ends(self, request: int, names: list[TopicPartition]) -> None:
        """Ask now or later; the answer travels a second time."""

        def ask() -> None:
            partitions = {name: self._broker.partition(name) for name in names}
            ends = {name: each.stable_end for name, each in partitions.items() if each is not None}
            if len(ends) == len(names):
                self._answers.append(lambda: self.applier.committed_ends(request, ends))

        self._answers.append(ask)

    def _ask_topic_ids(self, request: int) -> None:
        def ask() -> None:
            ids = dict(self._broker.ids)
            self._answers.append(lambda: self.applier.topic_ids(request, ids))

        self._answers.append(ask)

    def _read_snapshots(self, limit: int) -> None:
        partition = self._broker.partition(TopicPartition(SNAPSHOTS, 0))
        if partition is None or self._snapshots_position is None:
            return
        if self._snapshots_position < 0:
            self._snapshots_position = max(0, partition.end - 64)
        found = partition.read(self._snapshots_position, limit)
        for change in found:
            self._snapshots_position = change.offset + 1
            if change.value is not None:
                self.applier.snapshot(decode_snapshot(change.value))
        if not partition.read(self._snapshots_position, 1):
            self.applier.end_of_snapshots()

    def _fetch(self, name: TopicPartition, limit: int, *, is_silent: bool = False) -> None:
        partition = self._broker.partition(name)
        if partition is None:
            return
        found = partition.read(self._positions[name], limit)
        if found:
            self._positions[name] = found[-1].offset + 1
            self._fetched[name].append((self._readings[name], found))
        elif is_silent or self._random.random() < 0.3:
            # The client reports its position, also if that is in another topic of the same name.
            self._positions[name] = max(self._positions[name], partition.stable_end)
            self._fetched[name].append((self._readings[name], partition.stable_end))

    def _deliver(self, name: TopicPartition) -> None:
        fetched = self._fetched[name]
        if not fetched:
            return
        reading, found = fetched.popleft()
        if isinstance(found, int):
            self.applier.end_of_partition(name, reading, found)
        else:
            self.applier.records(name, reading, Changes.of(found))


assert {name.topic for shard in SHARDS for name in LAYOUT.partitions(shard)} == PARTITIONS.keys()
