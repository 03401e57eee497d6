"""A broker as far as transactions go: what each request does, one at a time, and nothing else.

It has Kafka's rules for clients without KIP-890, which is what librdkafka is: an ``EndTxn`` names a
producer and its epoch but not a transaction, so a delayed one may end the next transaction of the
same epoch. Answers are given as soon as the outcome is decided; the control records that make it
visible are written later, one partition after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.records import ProducerRecord

Target: TypeAlias = TopicPartition | str
"""A participant of a transaction: a partition, or a group by its name."""


class Code(Enum):
    """The reason why a request was refused."""

    CONCURRENT_TRANSACTIONS = "the last transaction is still ending"
    UNSTABLE_OFFSET_COMMIT = "a transaction is about to commit these offsets"
    PRODUCER_FENCED = "another producer took over"
    INVALID_TXN_STATE = "no such transaction is open"
    OUT_OF_ORDER_SEQUENCE_NUMBER = "records before these are missing"
    RECORD_TOO_LARGE = "the request holds a record that is too large"
    UNKNOWN_TOPIC_OR_PARTITION = "there is no such partition"
    TOPIC_ALREADY_EXISTS = "there is such a topic already"
    UNKNOWN_MEMBER_ID = "the group continued without this member"


RETRIABLE = {Code.CONCURRENT_TRANSACTIONS, Code.UNSTABLE_OFFSET_COMMIT}
"""Retriable errors: repeat the request."""


class RequestRefusedError(Exception):
    """A request was answered with an error."""

    def __init__(self, code: Code) -> None:
        self.code = code
        super().__init__(code.name)


class State(Enum):
    """The state of the transactions of an id."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare commit"
    PREPARE_ABORT = "prepare abort"
    COMPLETE_COMMIT = "complete commit"
    COMPLETE_ABORT = "complete abort"


_ENDING = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


@dataclass
class Transactional:
    """The coordinator's entry for a transactional id."""

    producer: int
    epoch: int = -1
    state: State = State.EMPTY
    targets: list[Target] = field(default_factory=list)
    opened: int = 0
    """How many transactions were opened."""


@dataclass
class Entry:
    """One offset of a partition."""

    record: ProducerRecord | None
    """None for a control record."""
    producer: int | None = None
    visible: bool | None = None
    """None while the transaction is open; False once it was aborted."""


@dataclass
class _Sequence:
    epoch: int
    last: int = -1


@dataclass
class Partition:
    """The records of a partition, and what its leader knows about producers."""

    most_bytes: int
    entries: list[Entry] = field(default_factory=list)
    producers: dict[int, _Sequence] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    """Where the open transaction of a producer begins."""

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.first.values(), default=len(self.entries))

    def append(self, producer: int, epoch: int, sequence: int, records: Iterable[Entry]) -> None:
        """Append records of a transaction."""
        self.first.setdefault(producer, len(self.entries))
        self.entries.extend(records)
        self.producers[producer] = _Sequence(epoch, sequence)

    def end(self, producer: int, epoch: int, *, commit: bool) -> None:
        """Write the control record that ends the transaction of a producer."""
        start = self.first.pop(producer, len(self.entries))
        for entry in self.entries[start:]:
            if entry.producer == producer and entry.visible is None:
                entry.visible = commit
        self.entries.append(Entry(None, producer, visible=False))
        known = self.producers.setdefault(producer, _Sequence(epoch))
        if epoch > known.epoch:
            self.producers[producer] = _Sequence(epoch)


_Placed: TypeAlias = tuple[int, OffsetAndMetadata]


@dataclass
class Group:
    """The committed offsets of a group, and those that open transactions are about to commit."""

    committed: dict[TopicPartition, _Placed] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, _Placed]] = field(default_factory=dict)
    markers: dict[int, int] = field(default_factory=dict)
    member: str | None = None
    """The one that may commit; None: anyone."""
    written: int = 0

    def placed(self, offset: OffsetAndMetadata) -> _Placed:
        """Return an offset with its place in the log of offsets, which decides what is newer."""
        self.written += 1
        return self.written, offset

    def forget(self, name: TopicPartition) -> None:
        """Forget an offset, and those that were about to take its place."""
        for offsets in (self.committed, *self.pending.values()):
            offsets.pop(name, None)

    def end(self, producer: int, epoch: int, *, commit: bool) -> None:
        """End the transaction of a producer."""
        self.markers[producer] = max(epoch, self.markers.get(producer, -1))
        for name, placed in self.pending.pop(producer, {}).items():
            if commit and placed[0] > self.committed.get(name, (0,))[0]:
                self.committed[name] = placed


class ModelBroker:
    """Topics, groups and the coordinator of transactions.

    Args:
        verifies: Whether a partition asks the coordinator before it takes the first record of a
            transaction (``transaction.partition.verification.enable``, since Kafka 3.6).
    """

    def __init__(self, *, verifies: bool = True) -> None:
        self._verifies = verifies
        self.partitions: dict[TopicPartition, Partition] = {}
        self.counts: dict[str, int] = {}
        self.topic_ids: dict[str, str] = {}
        self._created = 0
        self.groups: dict[str, Group] = {}
        self.transactional: dict[str, Transactional] = {}
        self._untransactional = 0
        self.unwritten: list[tuple[str, Target]] = []
        """Control records that are decided but on their way."""
        self.opened: list[tuple[str, int]] = []
        """Transactions that were opened, for the network, which lets them time out."""

    def create_topic(self, topic: str, partitions: int, most_bytes: int = 1 << 20) -> None:
        """Create a topic."""
        if topic in self.counts:
            raise RequestRefusedError(Code.TOPIC_ALREADY_EXISTS)
        self._created += 1
        self.topic_ids[topic] = f"{topic}-{self._created}"
        self.counts[topic] = partitions
        for number in range(partitions):
            self.partitions[TopicPartition(topic, number)] = Partition(most_bytes)

    def delete_topic(self, *, topic: str) -> None:
        """Delete a topic; groups forget what they committed there, or were about to."""
        for number in range(self.metadata(topic=topic)[0]):
            name = TopicPartition(topic, number)
            del self.partitions[name]
            for group in self.groups.values():
                group.forget(name)
        del self.counts[topic], self.topic_ids[topic]

    def list_topics(self) -> list[str]:
        """Return the names of all topics."""
        return sorted(self.counts)

    def metadata(self, *, topic: str) -> tuple[int, str]:
        """Return how many partitions a topic has, and its id."""
        if topic not in self.counts:
            raise RequestRefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return self.counts[topic], self.topic_ids[topic]

    def group(self, name: str) -> Group:
        """Return a group."""
        return self.groups.setdefault(name, Group())

    def init_producer_id(self, *, transactional_id: str) -> tuple[int, int]:
        """Hand out the next epoch of an id; what an earlier one left open is aborted first."""
        known = self.transactional.setdefault(
            transactional_id, Transactional(len(self.transactional) + 1)
        )
        if known.state is State.ONGOING:
            self._fence(transactional_id, known)
        if known.state in _ENDING:
            raise RequestRefusedError(Code.CONCURRENT_TRANSACTIONS)
        known.epoch += 1
        known.state = State.EMPTY
        return known.producer, known.epoch

    def add_partitions_to_txn(
        self, *, transactional_id: str, epoch: int, targets: Sequence[Target]
    ) -> None:
        """Add partitions to the transaction, which begins with the first of them.

        ``AddOffsetsToTxn`` is the same for a group.
        """
        known = self._checked(transactional_id, epoch)
        if known.state in _ENDING:
            raise RequestRefusedError(Code.CONCURRENT_TRANSACTIONS)
        if known.state is not State.ONGOING:
            known.state = State.ONGOING
            known.targets = []
            known.opened += 1
            self.opened.append((transactional_id, known.opened))
        known.targets += [target for target in targets if target not in known.targets]

    def produce(
        self,
        *,
        transactional_id: str,
        epoch: int,
        partition: TopicPartition,
        sequence: int,
        records: Sequence[ProducerRecord],
    ) -> None:
        """Append records of a transaction; those that are there already are not written again."""
        found = self._partition(partition)
        producer = self.transactional[transactional_id].producer
        known = found.producers.get(producer)
        if known is not None and epoch < known.epoch:
            raise RequestRefusedError(Code.PRODUCER_FENCED)
        last = known.last if known is not None and known.epoch == epoch else -1
        if sequence + len(records) - 1 <= last:
            return
        is_open = producer in found.first and known is not None and known.epoch == epoch
        self._verify(transactional_id, epoch, partition, is_open=is_open)
        if sequence != last + 1:
            raise RequestRefusedError(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._check_sizes(found, records)
        entries = [Entry(record, producer) for record in records]
        found.append(producer, epoch, sequence + len(records) - 1, entries)

    def new_producer_id(self) -> int:
        """Hand out the id of a producer that writes outside of transactions."""
        self._untransactional -= 1
        return self._untransactional

    def append(
        self,
        *,
        partition: TopicPartition,
        records: Sequence[ProducerRecord],
        producer: int | None = None,
        sequence: int = 0,
    ) -> int:
        """Append records outside of transactions; return the first offset.

        Those of a known producer that are there already are not written again: the answer is -1.
        """
        found = self._partition(partition)
        known = _Sequence(0) if producer is None else found.producers.get(producer, _Sequence(0))
        if sequence + len(records) - 1 <= known.last:
            return -1
        if sequence != known.last + 1:
            raise RequestRefusedError(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._check_sizes(found, records)
        if producer is not None:
            found.producers[producer] = _Sequence(0, sequence + len(records) - 1)
        start = len(found.entries)
        found.entries += [Entry(record, visible=True) for record in records]
        return start

    def txn_offset_commit(
        self,
        *,
        transactional_id: str,
        epoch: int,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Keep offsets of a group until the transaction ends."""
        found = self.group(group)
        producer = self.transactional[transactional_id].producer
        if epoch < found.markers.get(producer, -1):
            raise RequestRefusedError(Code.PRODUCER_FENCED)
        for name in offsets:
            self._partition(name)
        is_open = producer in found.pending and found.markers.get(producer) == epoch
        self._verify(transactional_id, epoch, group, is_open=is_open)
        found.markers[producer] = epoch
        pending = found.pending.setdefault(producer, {})
        pending.update((name, found.placed(offset)) for name, offset in offsets.items())

    def end_txn(self, *, transactional_id: str, epoch: int, commit: bool) -> None:
        """Decide the transaction of an epoch, whichever that is by now."""
        known = self._checked(transactional_id, epoch)
        preparing = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        if known.state is State.ONGOING:
            self._prepare(transactional_id, known, preparing)
        elif known.state is preparing:
            raise RequestRefusedError(Code.CONCURRENT_TRANSACTIONS)
        elif known.state is not complete:
            raise RequestRefusedError(Code.INVALID_TXN_STATE)

    def expire(self, transactional_id: str, opened: int) -> None:
        """Abort a transaction that was open for ``transaction.timeout.ms``."""
        known = self.transactional[transactional_id]
        if known.state is State.ONGOING and known.opened == opened:
            self._fence(transactional_id, known)

    def write_control_record(self, transactional_id: str, target: Target) -> None:
        """End a decided transaction at one of its participants."""
        known = self.transactional[transactional_id]
        commit = known.state is State.PREPARE_COMMIT
        participant = self.group(target) if isinstance(target, str) else self._partition(target)
        participant.end(known.producer, known.epoch, commit=commit)
        known.targets.remove(target)
        if not known.targets:
            known.state = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT

    def offset_commit(
        self,
        *,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: str | None = None,
    ) -> None:
        """Commit offsets at once."""
        found = self.group(group)
        if found.member != member:
            raise RequestRefusedError(Code.UNKNOWN_MEMBER_ID)
        for name in offsets:
            self._partition(name)
        found.committed.update((name, found.placed(offset)) for name, offset in offsets.items())

    def offset_fetch(
        self, *, group: str, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a group committed; refused while that is about to change."""
        found = self.group(group)
        names = list(found.committed) if partitions is None else partitions
        if partitions is not None and any(
            name in pending for pending in found.pending.values() for name in names
        ):
            raise RequestRefusedError(Code.UNSTABLE_OFFSET_COMMIT)
        return {name: found.committed[name][1] for name in names if name in found.committed}

    def delete_group(self, *, group: str) -> None:
        """Forget what a group committed, and what it was about to."""
        found = self.group(group)
        found.committed.clear()
        found.pending.clear()

    def expire_offsets(self, *, group: str, before: int) -> None:
        """Forget what a group committed before a place in the log of offsets."""
        found = self.group(group)
        for name, (position, _) in list(found.committed.items()):
            if position < before:
                del found.committed[name]

    def list_groups(self) -> list[str]:
        """Return the names of the groups that have committed something."""
        return sorted(name for name, group in self.groups.items() if group.committed)

    def list_offsets(self, *, partition: TopicPartition) -> int:
        """Return the last stable offset."""
        return self._partition(partition).stable

    def fetch(self, *, partition: TopicPartition) -> list[tuple[int, ProducerRecord]]:
        """Return the committed records before the last stable offset, with their offsets."""
        found = self._partition(partition)
        stable = enumerate(found.entries[: found.stable])
        return [(offset, e.record) for offset, e in stable if e.visible and e.record is not None]

    def _partition(self, name: TopicPartition) -> Partition:
        if name not in self.partitions:
            raise RequestRefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions[name]

    def _checked(self, transactional_id: str, epoch: int) -> Transactional:
        known = self.transactional[transactional_id]
        if epoch != known.epoch:
            raise RequestRefusedError(Code.PRODUCER_FENCED)
        return known

    def _check_sizes(self, partition: Partition, records: Sequence[ProducerRecord]) -> None:
        # A refusal is about the whole request: it does not say which record is to blame.
        if any(len(record.value or b"") > partition.most_bytes for record in records):
            raise RequestRefusedError(Code.RECORD_TOO_LARGE)

    def _verify(self, transactional_id: str, epoch: int, target: Target, *, is_open: bool) -> None:
        known = self.transactional[transactional_id]
        if not self._verifies or is_open:
            return
        if epoch != known.epoch:
            raise RequestRefusedError(Code.PRODUCER_FENCED)
        if known.state is not State.ONGOING or target not in known.targets:
            raise RequestRefusedError(Code.INVALID_TXN_STATE)

    def _fence(self, transactional_id: str, known: Transactional) -> None:
        # The abort is written with the next epoch, so that nothing of the last one gets in after.
        known.epoch += 1
        self._prepare(transactional_id, known, State.PREPARE_ABORT)

    def _prepare(self, transactional_id: str, known: Transactional, state: State) -> None:
        known.state = state
        self.unwritten += [(transactional_id, target) for target in known.targets]
