"""Transactions of Kafka's producers: opened by fencing, and ended within a timeout.

Run `make nightly PART=faults` and `tests/brokers/test_transactions.py` after a change here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.error_translation import TimedCalls, error_of, unwrap_fatal_error
from headrace.brokers.kafka.groups import KafkaGroups
from headrace.brokers.kafka.topics import client_partitions
from headrace.brokers.kafka.writing import KafkaWriter, fetch_metadata
from headrace.brokers.log import OffsetAndMetadata, RawRecord, TopicPartition
from headrace.errors import (
    BrokerError,
    BrokerUnavailableError,
    ProducerFencedError,
    RecordRefusedError,
    StreamsError,
)

_ABORT_SECONDS = 5.0
"""How long an abort may take: the next producer of the id aborts an open transaction."""

_FENCED_AT_ONCE = 8
"""How many transactional ids are fenced at the same time: each needs its own client."""


class KafkaTransaction:
    """A `LogTransaction` of a producer of its own."""

    def __init__(
        self,
        writer: KafkaWriter,
        groups: KafkaGroups,
        transactional_id: str,
        timeout_ms: int,
    ) -> None:
        self._writer = writer
        self._groups = groups
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._failures = writer.client_factory.failures
        self._failed: list[StreamsError] = []
        self._offsets: list[tuple[str, dict[TopicPartition, OffsetAndMetadata]]] = []
        self._asked: list[TopicPartition] = []
        self._ends: dict[TopicPartition, int] = {}
        self._has_records = False
        self._is_committing = False

    def __enter__(self) -> KafkaTransaction:
        self._batch_bytes = self._writer.batch_bytes
        # Successes are implied by an empty queue, so that only failures need a call each.
        self._producer, self._timeout_ms = open_transactional(
            self._writer,
            self._id,
            self._timeout_ms,
            batch_size=self._batch_bytes,
            delivery_report_only_error=True,
        )
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            doing = f"begin transaction {self._id!r}"
            raise self._failures.streams_error_from(
                error, doing, transactional_id=self._id
            ) from error
        self._begun = time.monotonic()
        return self

    def __exit__(self, error: type[BaseException] | None, *rest: object) -> None:
        try:
            if error is not None:
                self._abort()
            elif self._has_records or self._offsets:
                try:
                    self._commit()
                except BaseException:
                    self._abort()
                    raise
                self._writer.note_write(time.monotonic() - self._begun)
        finally:
            del self._producer

    def append(self, records: Iterable[RawRecord], /) -> None:
        self._has_records = True
        try:
            self._writer.produce_all(
                self._producer, records, self._delivered, self._batch_bytes, self._failed
            )
        except StreamsError as error:
            self._writer.await_refusal(self._producer, self._failed)
            if (cause := self._cause_of(error)) is not error:
                raise cause from error
            raise

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        self._offsets.append((group, dict(offsets)))

    def ask_ends(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        self._asked += partitions
        return self._ends

    def _delivered(self, record: RawRecord, error: KafkaError, _: object) -> None:
        self._failed.append(self._writer.delivery_error(error, record))

    def _commit(self) -> None:
        client_factory = self._writer.client_factory
        try:
            self._writer.flush(self._producer, self._failed)
            if self._failed:
                self._writer.await_refusal(self._producer, self._failed)
                raise self._failed[0]
            self._ends |= self._writer.topics.uncommitted_ends(self._asked)
            for group, offsets in self._offsets:
                self._writer.topics.check_partitions(offsets)
                send_offsets(self._producer, client_factory, offsets, self._groups.metadata(group))
            self._is_committing = True
            commit_transaction(self._producer, client_factory)
        except KafkaException as error:
            # Only with this flag is it certain that the transaction is not committed.
            self._is_committing &= not error_of(error).txn_requires_abort()
            doing = f"commit transaction {self._id!r}"
            raise self._cause_of(self._failures.streams_error_from(error, doing)) from error
        except StreamsError as error:
            if (cause := self._cause_of(error)) is not error:
                raise cause from error
            raise

    def _cause_of(self, failure: StreamsError) -> StreamsError:
        """Return the error that explains a failure of the transaction."""
        # After a refusal the client takes no more records, without a reason.
        refused = (error for error in self._failed if isinstance(error, RecordRefusedError))
        failure = next(refused, failure)
        if isinstance(failure, BrokerUnavailableError):
            if self._is_committing:
                return BrokerUnavailableError(
                    f"{failure} Whether it was committed shows when its id is opened again."
                )
        elif isinstance(failure, BrokerError):
            seconds = time.monotonic() - self._begun
            if seconds * 1000 >= self._timeout_ms:
                self._writer.note_write(seconds)
                return BrokerError(
                    f"Transaction {self._id!r} was open for {seconds:.1f} s, but the broker ends "
                    f"it after {self._timeout_ms / 1000:g} s (`transaction.timeout.ms`). Nothing "
                    "of it was written. Retry it, with a longer timeout if it needs one."
                )
            if isinstance(failure, ProducerFencedError):
                return ProducerFencedError(self._id)
        return failure

    def _abort(self) -> None:
        """Abort, unless the broker may be committing; errors of the abort do not matter."""
        if not self._is_committing:
            seconds = min(_ABORT_SECONDS, self._failures.timeout)
            with suppress(KafkaException):
                abort_transaction(self._producer, self._writer.client_factory, seconds)


def fence_producers(writer: KafkaWriter, transactional_ids: Iterable[str]) -> None:
    """Fence the producers of transactional ids, and abort their open transactions."""

    def end(transactional_id: str) -> None:
        open_transactional(writer, transactional_id, writer.transaction_timeout_ms())

    ids = list(dict.fromkeys(transactional_ids))
    if ids:
        with ThreadPoolExecutor(min(len(ids), _FENCED_AT_ONCE)) as pool:
            list(pool.map(end, ids))


def open_transactional(
    writer: KafkaWriter,
    transactional_id: str,
    timeout_ms: int,
    settings: Mapping[str, str] | None = None,
    **own: Any,
) -> tuple[Producer, int]:
    """Open a producer that has taken over a transactional id.

    Returns the producer and its timeout. The timeout is shorter than ``timeout_ms`` if the broker's
    ``transaction.max.timeout.ms`` requires that and the application does not set one.
    """
    while True:
        producer = writer.client_factory.producer(
            settings, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **own
        )
        try:
            take_over(producer, writer.client_factory, transactional_id)
        except BrokerError as error:
            if not _is_timeout_refused(error) or not writer.ask_for_less(timeout_ms):
                raise
            timeout_ms = min(timeout_ms, writer.longest_timeout_ms)
        else:
            return producer, timeout_ms


def take_over(producer: Producer, client_factory: ClientFactory, transactional_id: str) -> None:
    """Fence every earlier producer of a transactional id, and abort its open transaction."""
    fetch_metadata(producer, client_factory)
    try:
        client_factory.failures.call_with_retries(producer.init_transactions)
    except KafkaException as error:
        with suppress(KafkaException), unwrap_fatal_error():
            producer.poll(0)
        doing = f"open transactional id {transactional_id!r}"
        raise client_factory.failures.streams_error_from(
            error, doing, transactional_id=transactional_id
        ) from error


def _is_timeout_refused(error: BrokerError) -> bool:
    cause = error.__cause__
    return (
        isinstance(cause, KafkaException)
        and error_of(cause).code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
    )


def send_offsets(
    producer: Producer,
    client_factory: ClientFactory,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group_metadata: Any,
) -> None:
    """Add offsets of a group to the transaction; if that takes too long, nothing else may follow.

    The client has no timeout here: if the group's coordinator moves, it may wait for ever
    (librdkafka 2.16, issues 5456 and 5511).
    """
    positions = client_partitions(offsets)

    def send() -> None:
        client_factory.failures.call_with_retries(
            lambda seconds: producer.send_offsets_to_transaction(positions, group_metadata, seconds)
        )

    calls = TimedCalls()
    try:
        calls.run(send, client_factory.failures.timeout)
    finally:
        calls.close()


def commit_transaction(producer: Producer, client_factory: ClientFactory) -> None:
    """Commit; a retry within the timeout continues the same commit."""
    client_factory.failures.call_with_retries(producer.commit_transaction)


def abort_transaction(
    producer: Producer, client_factory: ClientFactory, seconds: float | None = None
) -> None:
    """Abort, with retries for at most ``seconds``, or our timeout."""
    client_factory.failures.call_with_retries(producer.abort_transaction, timeout=seconds)
