"""The leaders of the model's application: batches in transactions, and their snapshot records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from chaos.queries_model.broker import ModelBroker, ModelPartition
from chaos.queries_model.stores import (
    LAYOUT,
    PARTITIONS,
    SHARDS,
    SNAPSHOTS,
    History,
    ModelBatch,
)
from headrace.brokers.log import TopicPartition
from headrace.queries.copy.layout import Shard
from headrace.runtime.snapshots import (
    SnapshotRecord,
    decode_snapshot,
    digest_topic_ids,
    encode_snapshot,
    merged,
    newest_record,
)
from headrace.state.store_types.base import ChangelogRecord


@dataclass(frozen=True)
class WriterBuild:
    """The behaviour of the writer; the defaults are right."""

    ends_before_commit: bool = True
    """Whether ``ends`` come from the sink before its commit, or are asked beside the next batch."""
    carries_ends: bool = True
    """Whether a new leader writes the newest record again with its ends, or with present ones."""
    keeps_time: bool = True
    """Whether a record that is written again beside a batch keeps its time."""
    waits_for_all: bool = True
    """Whether a record is written after all transactions of its batch."""
    ends_after_appends: bool = True
    """Whether ``at_least_once`` asks for ``ends`` after its last append, or before it."""
    doubts_repeats: bool = True
    """Whether the first record of a leader with ``at_least_once`` says that counts are unknown."""


@dataclass
class Application:
    """The state that outlives a leader: checkpoint, markers, leader epoch."""

    history: History
    committed: int = -1
    """The last batch that Spark has committed."""
    markers: dict[Shard, int] = field(default_factory=dict)
    leader_epoch: int = 0
    transactions: int = 0
    is_exact: bool = True
    """Whether batches are written in transactions, or at least once."""


class Leader:
    """One leader. A later one fences it, but does not stop it."""

    def __init__(
        self, app: Application, broker: ModelBroker, random: Random, build: WriterBuild, now: int
    ) -> None:
        app.leader_epoch += 1
        self.epoch = app.leader_epoch
        self.app, self.broker, self.random, self.build = app, broker, random, build
        self.now = now
        self._abort_open()
        self.last: SnapshotRecord | None = None
        """The newest record, on which the next one builds."""
        self.outgoing: list[SnapshotRecord] = []
        """The record that is under way, and the one that waits behind it."""
        self.times: dict[str, list[dict[str, int] | None]] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.is_lost = False
        """Whether records were lost, so that the next one cannot say what changed."""
        self._may_repeat = build.doubts_repeats and not app.is_exact
        self._work: Iterator[None] | None = None
        self._is_writing = False
        self._late: tuple[ModelBatch, bool] | None = None
        self._topics = digest_topic_ids({topic: broker.ids[topic] for topic in PARTITIONS})
        self._start()

    @property
    def is_fenced(self) -> bool:
        return self.epoch != self.app.leader_epoch

    def _abort_open(self) -> None:
        for partitions in self.broker.topics.values():
            for partition in partitions:
                partition.abort_open(self.now)

    def _start(self) -> None:
        snapshots = self.broker.topics[SNAPSHOTS][0]
        records = [decode_snapshot(each.value) for each in snapshots.read(0, 10_000) if each.value]
        found = newest_record(r for r in records if r.history == self.app.history.id)
        if found is not None and found.snapshot >= self.app.committed:
            self.last = msgspec.structs.replace(found, leader_epoch=self.epoch)
            self.ends = {name: found.end(*name) for name in _names()}
            if not self.build.carries_ends:
                ends = {
                    topic: [each.end for each in self.broker.topics[topic]] for topic in PARTITIONS
                }
                self.last = msgspec.structs.replace(self.last, ends=ends)
            if self._may_repeat:
                for name, end in self.ends.items():
                    self.ends[name] = max(end, self._partition(name).end)
            self.times = found.store_times
            self.outgoing.append(self.last)
        else:
            self.is_lost = self.app.committed >= 0
            self.ends = {name: self._partition(name).end for name in _names()}
            self.times = {topic: [None] * count for topic, count in PARTITIONS.items()}

    def _partition(self, name: TopicPartition) -> ModelPartition:
        return self.broker.topics[name.topic][name.partition]

    def step(self, now: int) -> None:
        """Do the next thing of a batch. A fenced leader can only finish what needs no broker."""
        self.now = now
        is_stopped = self.is_fenced and self._is_writing
        if self._work is not None and not is_stopped and next(self._work, self) is self:
            self._work = None

    @property
    def is_busy(self) -> bool:
        return self._work is not None

    def begin(self) -> None:
        """Replay the unfinished batch, or plan the next."""
        history, number = self.app.history, self.app.committed + 1
        is_replay = number < len(history.batches)
        batch = history.batches[number] if is_replay else history.plan(self.random)
        self._work, self._is_writing = self._run(batch, is_replay=is_replay), True

    def _run(self, batch: ModelBatch, *, is_replay: bool) -> Iterator[None]:
        tasks = [self._write(shard, batch) for shard in SHARDS]
        if not self.build.waits_for_all:
            self._make_record(batch, is_replay=is_replay)
        while tasks:
            task = self.random.choice(tasks)
            if next(task, self) is self:
                tasks.remove(task)
            if self._late is not None and self.random.random() < 0.3:
                self._make_late_record()
            yield
        self._is_writing = False
        if not self.build.ends_before_commit:
            self._late = batch, is_replay
        elif self.build.waits_for_all:
            self._make_record(batch, is_replay=is_replay)
        yield
        if not self.is_fenced:
            self.app.committed = batch.number

    def _make_late_record(self) -> None:
        assert self._late is not None
        batch, is_replay = self._late
        self._late = None
        self.ends = {name: self._partition(name).end for name in _names()}
        self._make_record(batch, is_replay=is_replay)

    def _write(self, shard: Shard, batch: ModelBatch) -> Iterator[None]:
        changed = {name: batch.changes.get(name, []) for name in LAYOUT.partitions(shard)}
        if not self.app.is_exact:
            yield from self._write_at_least_once(changed)
            return
        if self.app.markers.get(shard, -1) >= batch.number:
            # No process writes to these partitions now. The transaction marker may be counted.
            for name in changed:
                if changed[name]:
                    self.ends[name] = self._partition(name).end
            return
        self.app.transactions += 1
        transaction = self.app.transactions
        for name, changes in changed.items():
            for key, value, timestamp in changes:
                partition = self._partition(name)
                partition.append(self.now, key, value, transaction, timestamp=timestamp)
                yield
        ends = {name: self._partition(name).end for name in changed if changed[name]}
        yield
        if self.random.random() < 0.1:
            for name in changed:
                self._partition(name).end_transaction(transaction, self.now, commits=False)
            yield
            yield from self._write(shard, batch)
            return
        for name in changed:
            self._partition(name).end_transaction(transaction, self.now, commits=True)
        self.app.markers[shard] = batch.number
        self.ends |= ends
        yield

    def _write_at_least_once(
        self, changed: dict[TopicPartition, list[ChangelogRecord]]
    ) -> Iterator[None]:
        """Write without a transaction. A replay, and a retry of a client, write records again."""
        for name, changes in changed.items():
            partition = self._partition(name)
            for key, value, timestamp in changes:
                end = partition.end
                for _ in range(self.random.choice((1, 1, 1, 2))):
                    partition.append(self.now, key, value, timestamp=timestamp)
                self.ends[name] = partition.end if self.build.ends_after_appends else end
                yield

    def _make_record(self, batch: ModelBatch, *, is_replay: bool) -> None:
        self.times = {
            topic: [batch.times.get(topic)] * count for topic, count in PARTITIONS.items()
        }
        if self.last is not None and self.last.snapshot >= batch.number:
            return
        if self.is_lost and is_replay:
            return
        changes: dict[str, dict[int, int]] = {}
        for name, changed in batch.changes.items():
            if changed:
                count = len(changed if self.app.is_exact else {*changed})
                changes.setdefault(name.topic, {})[name.partition] = count
        record = SnapshotRecord(
            history=self.app.history.id,
            leader_epoch=self.epoch,
            snapshot=batch.number,
            batch=batch.number,
            layout=LAYOUT.digest,
            topics=self._topics,
            clock=self.now,
            at=self.now,
            ends={
                topic: [self.ends[TopicPartition(topic, each)] for each in range(count)]
                for topic, count in PARTITIONS.items()
            },
            since=batch.number - 1,
            changes=None if self.is_lost or self._may_repeat else changes,
            store_times=self.times,
            position={"input": [batch.number + 1]},
        )
        self.is_lost = self._may_repeat = False
        self.last = record
        if len(self.outgoing) > 1:
            waiting = self.outgoing.pop()
            record = self._replacing(waiting, record)
        self.outgoing.append(record)

    def _replacing(self, older: SnapshotRecord, newer: SnapshotRecord) -> SnapshotRecord:
        return merged(older, newer) if newer.since == older.snapshot else newer

    def send(self, now: int, *, arrives: bool, is_answered: bool) -> None:
        """Write the record that is under way; it stays under way if that seems to fail."""
        if not self.outgoing:
            return
        if arrives:
            self.broker.create(SNAPSHOTS, 1)
            data = encode_snapshot(self.outgoing[0])
            self.broker.topics[SNAPSHOTS][0].append(now, b"%d" % self.epoch, data)
        if arrives and is_answered:
            self.outgoing.pop(0)
        elif len(self.outgoing) > 1:
            older, newer = self.outgoing
            self.outgoing = [self._replacing(older, newer)]

    def repeat(self, now: int) -> None:
        """Write the last record again, as after 5 s without a snapshot."""
        if self.last is not None and not self.outgoing:
            is_done = self.is_fenced or self.app.committed == len(self.app.history.batches) - 1
            if (is_done and not self.is_busy) or not self.build.keeps_time:
                self.last = msgspec.structs.replace(self.last, at=now)
            self.outgoing.append(self.last)


def _names() -> Iterator[TopicPartition]:
    for topic, count in PARTITIONS.items():
        yield from (TopicPartition(topic, partition) for partition in range(count))
