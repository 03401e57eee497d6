"""One run of application and instances, decided by a seed, and what must hold after every step."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NoReturn

from chaos.queries_model.broker import ModelBroker
from chaos.queries_model.instance import DELETE_RETENTION_MS, Instance
from chaos.queries_model.stores import LAYOUT, PARTITIONS, SHARDS, SNAPSHOTS, History
from chaos.queries_model.versions import VERSIONS, versions_in
from chaos.queries_model.writer import Application, Leader, WriterBuild
from headrace.brokers.log import TopicPartition
from headrace.errors import QueryError
from headrace.queries.copy.database import prefix_end
from headrace.queries.copy.keys import (
    LATEST_SEGMENT,
    entry_from_bytes,
    entry_prefix,
    segment_prefix,
)
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.tokens import parse_token, token_of
from headrace.runtime.snapshots import SnapshotRecord

STEPS = 400
INSTANCES = 3
AT_LEAST_ONCE = 8
"""One run in so many is of an application with ``at_least_once``."""
SEGMENTED = ("app-w", VERSIONS)
"""The changelogs whose entries are below a segment."""


class BrokenPromiseError(AssertionError):
    """An invariant of the protocol does not hold."""


class Simulation:
    """A run: batches and faults by chance, then calm until every copy is whole.

    Args:
        seed: Decides everything.
        build: The writer.
        traced: Whether to keep what happened.
    """

    def __init__(
        self, seed: int, build: WriterBuild | None = None, *, traced: bool = False
    ) -> None:
        self.seed = seed
        self.trace: list[str] | None = [] if traced else None
        self._random = Random(seed)
        self._build = build or WriterBuild()
        self._now = 1_000_000
        self._broker = ModelBroker(self._random)
        self._histories: dict[str, History] = {}
        self._is_exact = seed % AT_LEAST_ONCE != AT_LEAST_ONCE - 1
        self._app = Application(self._new_history(), is_exact=self._is_exact)
        self._create_topics()
        self._leader = Leader(self._app, self._broker, self._random, self._build, self._now)
        self._zombies: list[Leader] = []
        self._is_down = False
        self._tokens: list[tuple[str, str, int]] = []
        """Tokens that clients remember: text, history, number."""
        self._last_sent: dict[tuple[str, int], int] = {}
        """The newest number of each history and leader epoch."""
        self._named: dict[tuple[str, int], SnapshotRecord] = {}
        """The first record of each history and number."""
        self.shown = 0
        """How many snapshots were shown, by all instances."""
        self.followed = 0
        """How many of these followed the one before without a jump."""
        self._instances = [
            Instance(
                f"instance {number}",
                self._broker,
                self._random,
                shards,
                self._check_shown,
                is_exact=self._is_exact,
            )
            for number, shards in enumerate((SHARDS, SHARDS[:2] + SHARDS[3:], SHARDS[1:]))
        ]
        for instance in self._instances:
            instance.start(self._now)
            instance.peers = [each for each in self._instances if each is not instance]
        # Compaction finds most where copies begin often, and records come late.
        self._is_hostile = self._random.random() < (0.25 if self._is_exact else 0.6)
        # Compaction removes old versions. Kafka keeps them by event time.
        self._compacts_versions = self._random.random() < 0.5
        self._faults = self._choose_faults()
        self._writing = self._random.choice((0.3, 0.5, 0.7))
        self._sending = 0.07 if self._is_hostile else self._random.choice((0.1, 0.5))
        self._most_read = 6 if self._is_hostile else self._random.choice((3, 12, 40))

    def _new_history(self) -> History:
        history = History(f"{self._random.getrandbits(128):032x}")
        self._histories[history.id] = history
        return history

    def _create_topics(self) -> None:
        for topic, count in PARTITIONS.items():
            self._broker.create(topic, count)
        self._broker.create(SNAPSHOTS, 1)

    def _choose_faults(self) -> list[tuple[float, Callable[[], None]]]:
        """Return each fault with its rate: often, seldom or never in this run."""
        faults = (
            (self._compact, (0.8,) if self._is_hostile else (0.0, 0.1, 0.5)),
            (self._crash_instance, (0.03,) if self._is_hostile else (0.0, 0.01, 0.03)),
            (self._crash_in_a_write, (0.03,) if self._is_hostile else (0.0, 0.01, 0.03)),
            (self._crash_leader, (0.0, 0.005, 0.03)),
            (self._reset, (0.0, 0.0, 0.004)),
            (self._delete_snapshots, (0.0, 0.0, 0.005)),
            (self._purge, (0.0, 0.02)),
            (self._let_time_pass, (0.0, 0.01, 0.05)),
            (self._zombie, (0.1,)),
        )
        return [(self._random.choice(rates), fault) for fault, rates in faults]

    def run(self) -> None:
        """Run to the end.

        Raises:
            BrokenPromiseError: An invariant does not hold.
        """
        for _ in range(STEPS):
            self._now += self._random.choice((0, 1, 5, 20, 60))
            for rate, fault in self._faults:
                if self._random.random() < rate:
                    fault()
            if self._random.random() < self._writing:
                self._write()
            else:
                instance = self._random.choice(self._instances)
                instance.advance_time(self._now)
                for _ in range(self._random.randint(1, self._most_read)):
                    instance.step()
            if self._random.random() < 0.1:
                self._read_by_token()
        self._calm_down()

    # The events.

    def _say(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self._now - 1_000_000:7} {text}")

    def _write(self) -> None:
        leader = self._leader
        if self._is_down:
            if self._random.random() < 0.1:
                self._start_leader()
        elif leader.outgoing and self._random.random() < self._sending:
            self._send(leader)
        elif leader.is_busy:
            leader.step(self._now)
        elif self._random.random() < 0.7:
            leader.begin()
        elif self._random.random() < 0.3:
            leader.repeat(self._now)

    def _send(self, leader: Leader) -> None:
        arrives, is_answered = self._random.random() < 0.85, self._random.random() < 0.9
        if leader.outgoing:
            record = leader.outgoing[0]
            self._say(
                f"leader {leader.epoch} sends {record.snapshot} since {record.since}: "
                f"{'arrives' if arrives else 'lost'}"
            )
            if arrives:
                self._check_record(record)
        leader.send(self._now, arrives=arrives, is_answered=is_answered)

    def _start_leader(self) -> None:
        self._create_topics()
        self._is_down = False
        self._leader = Leader(self._app, self._broker, self._random, self._build, self._now)
        self._say(f"leader {self._leader.epoch} starts, lost record: {self._leader.is_lost}")

    def _crash_leader(self) -> None:
        """Start another leader, while the one before is dead or only stopped."""
        if self._is_down:
            return
        if self._random.random() < 0.5:
            self._zombies.append(self._leader)
        if self._random.random() < 0.5:
            self._is_down = True
        else:
            self._start_leader()

    def _zombie(self) -> None:
        if self._zombies:
            zombie = self._random.choice(self._zombies)
            zombie.step(self._now)
            if self._random.random() < 0.3:
                zombie.repeat(self._now)
            if SNAPSHOTS in self._broker.topics and self._random.random() < 0.3:
                self._send(zombie)

    def _compact(self) -> None:
        topic = self._random.choice([*self._broker.topics, SNAPSHOTS])
        if topic == VERSIONS and not self._compacts_versions:
            return
        for partition in self._broker.topics.get(topic, ()):
            partition.compact(self._random, self._now, DELETE_RETENTION_MS)
        self._say(f"{topic} is compacted")

    def _purge(self) -> None:
        """Delete window records that have expired, as the planner does."""
        last = self._leader.last
        windows = self._broker.topics.get("app-w")
        if last is None or windows is None or self._is_down or last.history != self._app.history.id:
            return
        expired = [
            entry.change.offset
            for entry in windows[0].entries.values()
            if entry.change is not None and entry.transaction is None
            if entry.change.key[-1] < last.snapshot // 4 - 3
        ]
        kept = [
            entry.change.offset
            for entry in windows[0].entries.values()
            if entry.change is not None and entry.change.offset not in expired
        ]
        if expired:
            windows[0].cut(min(max(expired) + 1, *kept, last.end("app-w", 0)))

    def _crash_instance(self) -> None:
        instance = self._random.choice(self._instances)
        keeps_files = self._random.random() < 0.7
        instance.start(self._now, keeps_files=keeps_files)
        self._say(f"{instance.name} starts again{'' if keeps_files else ' without its files'}")

    def _crash_in_a_write(self) -> None:
        instance = self._random.choice(self._instances)
        instance.crash_in_a_write()
        self._say(f"{instance.name} ends in one of its next writes")

    def _let_time_pass(self) -> None:
        self._now += self._random.choice((500, 3_000, 12_000, 35_000))

    def _delete_snapshots(self) -> None:
        self._broker.delete(SNAPSHOTS)
        self._say("the snapshots topic is deleted")

    def _reset(self) -> None:
        """Reset the application; instances that live on must notice by themselves."""
        self._say("reset")
        if not self._is_down:
            self._zombies.append(self._leader)
        self._broker.delete(SNAPSHOTS)
        for topic in PARTITIONS:
            self._broker.delete(topic)
        self._app.leader_epoch += 1
        self._app = Application(self._new_history(), is_exact=self._is_exact)
        self._is_down = True

    # The checks.

    def fail(self, text: str) -> NoReturn:
        msg = (
            f"Seed {self.seed}: {text}. "
            f"Repeat it with `python -m chaos.queries_model --seed {self.seed}`"
        )
        raise BrokenPromiseError(msg)

    def _check_shown(self, instance: Instance, shown: ShownSnapshot) -> None:
        record = shown.record
        self.shown += 1
        self.followed += any(previous is not None for previous in shown.shards.values())
        self._say(f"{instance.name} shows {record.snapshot} with {len(shown.shards)} shards")
        self._check_contents(instance.name, shown, record.history, record.snapshot)
        for shard in shown.shards:
            history, number = instance.last_shown.get(shard, (record.history, -1))
            if history == record.history and number > record.snapshot:
                self.fail(f"Q4: {instance.name} goes back from {number} to {record.snapshot}")
            instance.last_shown[shard] = record.history, record.snapshot
        self._check_changes(instance, shown)
        if len(self._tokens) < 40 or self._random.random() < 0.2:
            token = str(token_of(record)), record.history, record.snapshot
            self._tokens = [*self._tokens[-39:], token]

    def _check_contents(self, who: str, shown: ShownSnapshot, history: str, number: int) -> None:
        expected = self._histories[history].contents[number]
        for shard in shown.shards:
            for name in LAYOUT.partitions(shard):
                if (found := contents(shown, name)) != expected[name]:
                    self.fail(f"Q1: {who} has {found} at {number} in {name}, not {expected[name]}")
                if name.topic == VERSIONS and not self._compacts_versions:
                    seen = versions_in(shown.view, name, shown.record.times(*name) or {})
                    wanted = self._histories[history].versions[number]
                    if seen != wanted:
                        self.fail(f"Q1: {who} has versions {seen} at {number}, not {wanted}")

    def _check_changes(self, instance: Instance, shown: ShownSnapshot) -> None:
        """Check that an earlier read and the changes since then make this read."""
        kept = [each for each in instance.copy.snapshots if each is not shown]
        if not kept:
            return
        earlier = self._random.choice(kept)
        for shard in shown.shards:
            if shard not in earlier.shards:
                continue
            steps = instance.copy.snapshots.changes_after(token_of(earlier.record), shard)
            if steps is not None:
                self._check_steps(shard, earlier, steps, shown)

    def _check_steps(
        self, shard: Shard, earlier: ShownSnapshot, steps: list[ShownSnapshot], shown: ShownSnapshot
    ) -> None:
        for name in LAYOUT.partitions(shard):
            start = len(entry_prefix(name))
            seen = contents(earlier, name)
            for step in steps:
                keys = [*step.changed_keys(name)]
                if keys != sorted(set(keys)):
                    self.fail(f"Q7: {keys} of {step.record.snapshot} are not in order, or twice")
                for key in keys:
                    data = step.view.get(key)
                    short = key[start + 8 :] if name.topic in SEGMENTED else key[start:]
                    value = None if data is None else entry_from_bytes(data).value
                    seen.pop(short, None)
                    if value is not None:
                        seen[short] = value
            wanted = contents(shown, name)
            if name.topic == "app-w":
                seen = {key: value for key, value in seen.items() if key in wanted}
            if seen != wanted:
                self.fail(
                    f"Q8: a read at {earlier.record.snapshot} and the changes give {seen}, "
                    f"and a read at {shown.record.snapshot} gives {wanted}"
                )

    def _check_record(self, record: SnapshotRecord) -> None:
        """Check a record: numbers of one leader never fall, a number names the same stores."""
        leader = record.history, record.leader_epoch
        if self._last_sent.get(leader, -1) > record.snapshot:
            self.fail(f"Q9: leader {record.leader_epoch} falls to {record.snapshot}")
        self._last_sent[leader] = record.snapshot
        first = self._named.setdefault((record.history, record.snapshot), record)
        if record.history != self._app.history.id or not self._is_exact:
            return  # without transactions a replay writes the same again, behind the first ends
        for topic, count in PARTITIONS.items():
            for number, partition in enumerate(self._broker.topics[topic][:count]):
                ends = sorted((first.end(topic, number), record.end(topic, number)))
                if any(change.offset < ends[1] for change in partition.read(ends[0], 1)):
                    self.fail(f"Q9: {record.snapshot} names two states of {topic}")

    def _read_by_token(self) -> None:
        """Read again, anywhere, what a client saw before."""
        if not self._tokens:
            return
        text, history, number = self._random.choice(self._tokens)
        instance = self._random.choice(self._instances)
        try:
            shown = instance.copy.snapshots.at(parse_token(text))
        except QueryError:
            return
        self._check_contents(f"{instance.name}, asked for {text},", shown, history, number)

    def _calm_down(self) -> None:
        """Check that everything becomes whole when nothing goes wrong any more."""
        self._zombies = []
        self._start_leader()
        for batch in range(3):
            self._leader.begin()
            while self._leader.is_busy:
                self._leader.step(self._now)
            while self._leader.outgoing:
                self._leader.send(self._now, arrives=True, is_answered=True)
            if batch < 2 or self._random.random() < 0.5:
                self._follow(rounds=2)
        for _ in range(12):
            self._leader.repeat(self._now)
            self._leader.send(self._now, arrives=True, is_answered=True)
            self._follow(rounds=1)
        self._check_all_whole()

    def _check_all_whole(self) -> None:
        newest = self._leader.last
        if newest is None:
            self.fail("Q10: the leader has written no record")
        for instance in self._instances:
            for shard in instance.shards:
                shown = instance.copy.snapshots.newest_of(shard)
                if shown is None or shown.record.snapshot != newest.snapshot:
                    at = shown.record.snapshot if shown else None
                    self.fail(f"Q10: {instance.name} has {shard} at {at}, not {newest.snapshot}")
            if not instance.applier.is_ready():
                self.fail(f"Q10: {instance.name} is not ready")

    def _follow(self, rounds: int) -> None:
        for _ in range(rounds):
            self._now += 5_000
            for instance in self._instances:
                instance.advance_time(self._now)
                for _ in range(3):
                    instance.run_until_quiet()


def contents(shown: ShownSnapshot, name: TopicPartition) -> dict[bytes, bytes]:
    """Return the entries of a changelog partition in a snapshot, without those that expired."""
    prefix = entry_prefix(name)
    if name.topic == VERSIONS:
        prefix = segment_prefix(prefix, LATEST_SEGMENT)
    found = {}
    for key, data in shown.view.scan(prefix, prefix_end(prefix)):
        value = entry_from_bytes(data).value
        assert value is not None
        found[key[len(prefix) + (8 if name.topic == "app-w" else 0) :]] = value
    return found


def run(seed: int, build: WriterBuild | None = None) -> int:
    """Run a seed, and return how many snapshots followed the one before, in all instances."""
    simulation = Simulation(seed, build)
    simulation.run()
    return simulation.followed
