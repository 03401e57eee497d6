"""A producer of the embedded log."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from headrace.brokers.embedded import topics
from headrace.brokers.embedded.consumer import EmbeddedGroupMetadata
from headrace.brokers.embedded.database import Database
from headrace.brokers.embedded.groups import check_member
from headrace.brokers.embedded.offsets import commit
from headrace.brokers.embedded.writing import (
    append,
    check_epoch,
    clean_where_due,
    metadata_of,
    take_over,
    write,
)
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import ABORTED, GroupMetadata, OnDelivery
from headrace.errors import (
    BrokerError,
    BrokerUnavailableError,
    BufferExhaustedError,
    RecordRefusedError,
    StreamsError,
    TopicExistsError,
    UnknownTopicError,
)
from headrace.records import ProducerRecord, RecordMetadata

_REFUSALS = (RecordRefusedError, UnknownTopicError)
"""Errors of one record: the same log may take another."""


class _Sent(NamedTuple):
    record: ProducerRecord
    on_delivery: OnDelivery


class EmbeddedProducer:
    """A `ProducerSession`: a thread writes all buffered records at once.

    A transaction is gathered in memory and written when it commits, so that it does not keep other
    writers waiting. Offsets inside it are known only then.
    """

    delivers_before_commit = False

    def __init__(
        self, database: Database, background: Database, settings: Mapping[str, str]
    ) -> None:
        self._database = database
        self._background = background
        self._linger = int(settings.get("linger.ms", 0)) / 1000
        self._batch_bytes = int(settings.get("batch.size", 16_384))
        self._max_bytes = int(settings.get("buffer.memory", 32 << 20))
        self._max_block = int(settings.get("max.block.ms", 60_000)) / 1000
        self._changed = threading.Condition()
        self._waiting: list[_Sent] = []
        self._waiting_bytes = 0
        self._writing = 0
        self._flushing = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._transactional_id = settings.get("transactional.id")
        self._epoch = 0
        if self._transactional_id is not None:
            self._epoch = take_over(database, self._transactional_id)
        self._gathered: list[_Sent] | None = None
        self._offsets: list[tuple[EmbeddedGroupMetadata, dict[TopicPartition, OffsetAndMetadata]]]

    def partition_count(self, topic: str, /) -> int:
        try:
            with self._database.reading() as file:
                return topics.partition_count(file, topic)
        except UnknownTopicError:
            pass
        try:
            # As a broker does whose `auto.create.topics.enable` is true.
            with self._database.writing() as file:
                topics.create_topic(file, topic, 1, {})
        except TopicExistsError:
            return self.partition_count(topic)
        return 1

    def send(self, record: ProducerRecord, on_delivery: OnDelivery, /) -> None:
        if self._gathered is not None:
            self._gathered.append(_Sent(record, on_delivery))
            return
        with self._changed:
            self._start()
            if not self._changed.wait_for(self._has_room, self._max_block):
                raise BufferExhaustedError(self._max_block)
            self._waiting.append(_Sent(record, on_delivery))
            self._waiting_bytes += _size(record)
            self._changed.notify_all()

    def flush(self, timeout_ms: int | None = None, /) -> None:
        timeout = None if timeout_ms is None else timeout_ms / 1000
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            done = self._changed.wait_for(self._is_idle, timeout)
            self._flushing -= 1
        if not done:
            msg = (
                f"Records were not all written after {timeout:g} s. Allow more time, or try again."
            )
            raise BrokerUnavailableError(msg)

    def begin_transaction(self) -> None:
        self._gathered = []
        self._offsets = []

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        assert isinstance(group, EmbeddedGroupMetadata)
        self._offsets.append((group, dict(offsets)))

    def commit_transaction(self) -> None:
        assert self._transactional_id is not None
        sent = self._gathered or []
        with self._database.writing() as file:
            check_epoch(file, self._transactional_id, self._epoch)
            records = [record for record, _ in sent]
            offsets, written = append(file, records)
            for member, positions in self._offsets:
                check_member(file, member.group, member.member_id, member.generation)
                commit(file, member.group, positions)
        self._gathered = None
        _deliver(sent, metadata_of(records, offsets))
        clean_where_due(self._database, written)

    def abort_transaction(self) -> None:
        sent, self._gathered = self._gathered or [], None
        _fail(sent, BrokerError(ABORTED))

    def close(self, timeout_ms: int | None = None, /) -> None:
        try:
            self.flush(timeout_ms)
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            if self._thread is not None:
                self._thread.join()
            self._background.close()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._write_all, name="embedded-producer", daemon=True
            )
            self._thread.start()

    def _has_room(self) -> bool:
        return self._waiting_bytes < self._max_bytes

    def _is_idle(self) -> bool:
        return not self._waiting and not self._writing

    def _is_due(self) -> bool:
        return self._closed or self._flushing > 0 or self._waiting_bytes >= self._batch_bytes

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                self._changed.wait_for(self._is_due, self._linger)
                sent, self._waiting, self._waiting_bytes = self._waiting, [], 0
                self._writing = len(sent)
                self._changed.notify_all()
            try:
                self._write(sent)
            finally:
                with self._changed:
                    self._writing = 0
                    self._changed.notify_all()

    def _write(self, sent: list[_Sent]) -> None:
        try:
            metadata = write(self._background, [record for record, _ in sent])
        except _REFUSALS:
            self._write_one_by_one(sent)  # the others are good
        except StreamsError as error:
            _fail(sent, error)
        else:
            _deliver(sent, metadata)

    def _write_one_by_one(self, sent: list[_Sent]) -> None:
        for number, item in enumerate(sent):
            try:
                metadata = write(self._background, [item.record])
            except _REFUSALS as error:
                _fail([item], error)
            except StreamsError as error:
                _fail(sent[number:], error)
                return
            else:
                _deliver([item], metadata)


def _fail(sent: list[_Sent], error: StreamsError) -> None:
    for _, on_delivery in sent:
        on_delivery(None, error)


def _deliver(sent: list[_Sent], metadata: list[RecordMetadata]) -> None:
    for (_, on_delivery), where in zip(sent, metadata, strict=True):
        on_delivery(where, None)


def _size(record: ProducerRecord) -> int:
    return len(record.key or b"") + len(record.value or b"") + 24
