"""Broken builds: each breaks one step of the protocol, and the simulation must find it.

Some ways to be wrong do no harm, and are not among them:

- No check of the leader epoch before the producer is opened: the check after it decides.
- Offsets read without waiting for those that a transaction is about to commit: the producer that
  fenced the id has waited already.
- One transactional id for all sink partitions: they fence each other, but write nothing twice.
- No abort after a failure: the next producer of the id aborts.
- The sentinel checked by the sink alone: no batch is replayed without the sink.
- All tasks written again if one is missing: of a batch, the tasks of a sink partition have all
  written, or none.

Others do harm so seldom, one seed in some hundreds, that looking for them takes too long: a start
that fences producers before it takes the leader epoch, and a reset that forgets markers while an
attempt may still write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import msgspec

from chaos.model.application import CHECKED, Build
from chaos.model.batches import APPLICATION, DEAD_LETTERS
from chaos.model.broker import ModelBroker
from chaos.model.client import Client, IdempotentProducer, ModelTransaction, Producer
from chaos.model.network import Network, SimulatedConnection
from chaos.model.operating import Scenario
from headrace.brokers.log import (
    OffsetAndMetadata,
    RawRecord,
    TopicLog,
    TopicPartition,
    producer_record,
)
from headrace.clients.reset import execute_reset, plan_reset
from headrace.errors import BrokerUnavailableError, ProducerFencedError
from headrace.home import ApplicationHome
from headrace.records import ProducerRecord
from headrace.runtime.checkpoint.markers import Marker
from headrace.runtime.output.batch_writer import BatchWriter

_numbers = count()
_NO_LIMIT = 1 << 31
_WITHOUT_SENTINEL = ("lead", "prepare", "check_lead", "check_without_sentinel", "commit_sentinel")


class _Reading(BatchWriter):
    def _markers(self, tasks: Iterable[int]) -> dict[int, tuple[int, Marker]]:
        """Return the offsets of markers, and their metadata."""
        names = [TopicPartition(self._marker_group, task) for task in tasks]
        found = self._log.committed_offsets(self._marker_group, names)
        return {
            name.partition: (marker.offset, msgspec.json.decode(marker.metadata, type=Marker))
            for name, marker in found.items()
        }


class _MarkersIgnored(BatchWriter):
    def _written_tasks(self, task_numbers: Iterable[int], own: Marker) -> set[int]:
        return set()


class _DigestIgnored(_Reading):
    def _written_tasks(self, task_numbers: Iterable[int], own: Marker) -> set[int]:
        found = self._markers(task_numbers)
        return {task for task, (offset, _) in found.items() if offset > self._batch}


class _QueryIgnored(_Reading):
    def _written_tasks(self, task_numbers: Iterable[int], own: Marker) -> set[int]:
        found = self._markers(task_numbers).items()
        foreign = {
            task
            for task, (offset, marker) in found
            if marker.query != own.query and offset > self._batch
        }
        return super()._written_tasks(task_numbers, own) | foreign


class _LeaderEpochIgnored(BatchWriter):
    def _check_leadership(self) -> None:
        pass

    def _written_tasks(self, task_numbers: Iterable[int], own: Marker) -> set[int]:
        return super()._written_tasks(
            task_numbers, msgspec.structs.replace(own, leader_epoch=_NO_LIMIT)
        )


class _SentinelIgnored(BatchWriter):
    def _check_markers_intact(self) -> None:
        pass


class _OneMarkerForAll(BatchWriter):
    def _written_tasks(self, task_numbers: Iterable[int], own: Marker) -> set[int]:
        return set(task_numbers) if super()._written_tasks([0], own) else set()


class _AllToOneMarker(ModelTransaction):
    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        first = TopicPartition(group, 0)
        super().commit_offsets(group, dict.fromkeys([first], next(iter(offsets.values()))))


class _MarkersApart(ModelTransaction):
    def send_offsets(self) -> None:
        pass

    def commit(self) -> None:
        super().commit()
        super().send_offsets()
        super().commit()


class _MarkersOutside(ModelTransaction):
    def send_offsets(self) -> None:
        for group, offsets in self._offsets:
            self._client.ask(ModelBroker.offset_commit, group=group, offsets=offsets)


class _MarkersLate(ModelTransaction):
    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        late = {name: each._replace(offset=each.offset - 1) for name, each in offsets.items()}
        super().commit_offsets(group, late)


class _CommitsFirst(ModelTransaction):
    def __init__(self, client: Client, transactional_id: str) -> None:
        super().__init__(client, transactional_id)
        self._records: list[ProducerRecord] = []

    def append(self, records: Iterable[RawRecord], /) -> None:
        self._records += [producer_record(record) for record in records]

    def commit(self) -> None:
        super().commit()
        self.producer.send(self._records)
        super().commit()


class _LateProducer(Producer):
    def take_over(self) -> None:
        pass

    def send(self, records: Iterable[ProducerRecord]) -> None:
        super().take_over()
        super().send(records)


class _TakesOverLate(ModelTransaction):
    def open_producer(self) -> Producer:
        return _LateProducer(self._client, self._id)


class _KeepsProducer(ModelTransaction):
    """Keeps the producer of the last attempt, until it is fenced."""

    _kept: ClassVar[WeakKeyDictionary[Network, dict[str, dict[str, Any]]]] = WeakKeyDictionary()
    """The producers, by network and id."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        super().__init__(client, transactional_id)
        assert isinstance(client.connection, SimulatedConnection)
        self._producers = self._kept.setdefault(client.connection.network, {})

    def open_producer(self) -> Producer:
        kept = self._producers.get(self._id)
        producer = super().open_producer() if kept is None else Producer.__new__(Producer)
        producer.__dict__.update(kept or {}, _client=self._client)
        self._producers[self._id] = producer.__dict__
        return producer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool | None:
        try:
            if isinstance(error, ProducerFencedError):
                raise error
            return super().__exit__(kind, error, trace)
        except ProducerFencedError:
            self._producers.pop(self._id, None)
            raise


class _IdPerAttempt(ModelTransaction):
    def __init__(self, client: Client, transactional_id: str) -> None:
        super().__init__(client, f"{transactional_id}-{next(_numbers)}")


class _FencedIsWritten(ModelTransaction):
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool | None:
        with suppress(ProducerFencedError):
            return super().__exit__(kind, error, trace)
        return None


class _AbortedIsWritten(ModelTransaction):
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool | None:
        has_sent = bool(self.producer.targets)
        super().__exit__(kind, error, trace)
        return has_sent and isinstance(error, BrokerUnavailableError)


class _SilenceIsWritten(ModelTransaction):
    def commit(self) -> None:
        with suppress(BrokerUnavailableError):
            super().commit()


class _DeliveriesUnchecked(ModelTransaction):
    class _Unchecked(Producer):
        def _produce(self, name: TopicPartition, records: list[ProducerRecord]) -> None:
            with suppress(BrokerUnavailableError):
                super()._produce(name, records)

    def open_producer(self) -> Producer:
        return self._Unchecked(self._client, self._id)


class _WritesAgain(ModelTransaction):
    """Writes everything again with the same producer, if no answer confirms the commit."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        super().__init__(client, transactional_id)
        self._records: list[ProducerRecord] = []

    def append(self, records: Iterable[RawRecord], /) -> None:
        self._records += [producer_record(record) for record in records]
        self.producer.send(self._records)

    def commit(self) -> None:
        try:
            super().commit()
        except BrokerUnavailableError:
            self.producer.targets = []
            self.producer.send(self._records)
            self.send_offsets()
            super().commit()


class _DeadLettersOutside(ModelTransaction):
    def append(self, records: Iterable[RawRecord], /) -> None:
        written = [producer_record(record) for record in records]
        super().append(record for record in written if record.topic != DEAD_LETTERS)
        for record in written:
            if record.topic == DEAD_LETTERS:
                name = TopicPartition(DEAD_LETTERS, 0)
                self._client.ask(ModelBroker.append, partition=name, records=[record])


class _WithoutSequences(IdempotentProducer):
    def produce(self, name: TopicPartition, record: ProducerRecord, sequence: int) -> int:
        offset: int = self._client.ask(ModelBroker.append, partition=name, records=[record])
        return offset


class _Unheard(IdempotentProducer):
    def produce(self, name: TopicPartition, record: ProducerRecord, sequence: int) -> int:
        with suppress(BrokerUnavailableError):
            return super().produce(name, record, sequence)
        return -1


def _forget_groups_first(log: TopicLog, home: ApplicationHome, /) -> None:
    plan = plan_reset(log, home)
    execute_reset(log, replace(plan, offsets=(), topics=(), groups=(*plan.groups, APPLICATION)))
    for topic in plan.topics:
        log.delete_topic(topic)


AT_LEAST_ONCE = Build(guarantee="at_least_once", start=("lead",))
"""A correct build with a weaker guarantee."""


MUTANTS: dict[str, tuple[Build, Scenario]] = {
    "markers are not checked": (Build(_MarkersIgnored), "any"),
    "the digest is not compared": (Build(_DigestIgnored), "restore"),
    "markers of another query count": (Build(_QueryIgnored), "any"),
    "the leader epoch is not checked": (Build(_LeaderEpochIgnored), "reset"),
    "all tasks share one marker": (Build(_OneMarkerForAll, _AllToOneMarker), "any"),
    "markers follow in a transaction of their own": (Build(transactions=_MarkersApart), "any"),
    "markers are committed outside of the transaction": (
        Build(transactions=_MarkersOutside),
        "any",
    ),
    "markers are one batch behind": (Build(transactions=_MarkersLate), "any"),
    "the commit comes before the records": (Build(transactions=_CommitsFirst), "any"),
    "markers are read before the id is taken over": (Build(transactions=_TakesOverLate), "any"),
    "an attempt keeps the last one's producer": (Build(transactions=_KeepsProducer), "any"),
    "each attempt has an id of its own": (Build(transactions=_IdPerAttempt), "any"),
    "a fenced attempt counts as written": (Build(transactions=_FencedIsWritten), "any"),
    "an aborted attempt counts as written": (Build(transactions=_AbortedIsWritten), "any"),
    "a commit without an answer counts as written": (Build(transactions=_SilenceIsWritten), "any"),
    "deliveries are not checked": (Build(transactions=_DeliveriesUnchecked), "any"),
    "a commit without an answer is written again": (Build(transactions=_WritesAgain), "any"),
    "dead letters are written outside of the transaction": (
        Build(transactions=_DeadLettersOutside),
        "any",
    ),
    "a start ends no transactions": (Build(start=("lead", "make_topics")), "any"),
    "the sentinel is not checked": (
        replace(CHECKED, writer=_SentinelIgnored, start=_WITHOUT_SENTINEL),
        "loss",
    ),
    "the sentinel is checked at the start alone": (
        replace(CHECKED, writer=_SentinelIgnored),
        "loss",
    ),
    "a clean-up forgets groups before the topic of markers": (
        replace(CHECKED, forget=_forget_groups_first),
        "clean-up",
    ),
    "a batch is committed before all partitions are": (Build(unfinished=1), "any"),
    "at least once, sequences are not sent": (
        replace(AT_LEAST_ONCE, producers=_WithoutSequences),
        "any",
    ),
    "at least once, deliveries are not checked": (
        replace(AT_LEAST_ONCE, producers=_Unheard),
        "any",
    ),
    "at least once, a batch is committed before all partitions are": (
        replace(AT_LEAST_ONCE, unfinished=1),
        "any",
    ),
}
"""Broken builds by what is wrong with them, each with the scenario that shows it soonest."""
