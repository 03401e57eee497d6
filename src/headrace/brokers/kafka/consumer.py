"""A consumer of Kafka."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.error_translation import UNKNOWN_TOPIC, TimedCalls, error_of
from headrace.brokers.kafka.records import records_from_messages
from headrace.brokers.kafka.topics import check_answers, client_partitions
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import OnCommitted, RebalanceListener, Wakeup, needed_group
from headrace.errors import CommitFailedError, OffsetOutOfRangeError, StreamsError
from headrace.records import ConsumerRecord

_SLICE = 0.1
"""How long a wakeup may take, in seconds: the client cannot be interrupted."""
_PAUSE = 0.02
_CLOSE_SECONDS = 10.0
"""How long closing may take: the group removes a missing member by itself."""

_RETRIABLE = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._MAX_POLL_EXCEEDED,
}
"""Errors that the client retries by itself."""


@dataclass(frozen=True)
class KafkaGroupMetadata:
    """The client's description of itself as a member."""

    group: str
    opaque: Any


class KafkaConsumerSession:
    """A `ConsumerSession` over librdkafka's consumer."""

    def __init__(
        self, client_factory: ClientFactory, group: str | None, settings: Mapping[str, str]
    ) -> None:
        self._client_factory = client_factory
        self._failures = client_factory.failures
        self._group = group
        strategy = settings.get("partition.assignment.strategy", "")
        self._is_incremental = (
            "cooperative" in strategy or settings.get("group.protocol") == "consumer"
        )
        self._reset = {"none": "error"}.get(policy := settings.get("auto.offset.reset", ""), policy)
        self._consumer = client_factory.consumer(
            settings,
            group_id=group or "headrace-no-group",  # never joined: librdkafka asks for a name
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset=self._reset or "latest",
            isolation_level=settings.get("isolation.level", "read_committed"),
            on_commit=self._on_commit,
        )
        self._listener: RebalanceListener | None = None
        self._owned: set[TopicPartition] = set()
        """The partitions that the listener has."""
        self._in_callback = False
        """Whether the client is calling the listener."""
        self._committing: list[tuple[list[ClientPartition], OnCommitted]] = []
        """Asynchronous commits that the client has not reported yet."""
        self._ends: dict[TopicPartition, int] = {}
        self._calls = TimedCalls()
        self._failed: BaseException | None = None
        self._woken = Wakeup()

    def subscribe(
        self, topics: Collection[str] | re.Pattern[str], listener: RebalanceListener, /
    ) -> None:
        needed_group(self._group)
        self._listener = listener
        # librdkafka reads a name that begins with ^ as a pattern.
        named = [f"^{topics.pattern}$"] if isinstance(topics, re.Pattern) else list(topics)
        self._consumer.subscribe(
            named,
            on_assign=self._on_assign,
            on_revoke=self._callback(listener.revoked),
            on_lost=self._callback(listener.lost),
        )

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        if self._listener is not None:
            self._listener = None
            self._owned.clear()
            self._consumer.unsubscribe()
            self._await_revocation()
        self._ends.clear()
        self._consumer.assign(_client_positions(positions))

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        self._ends.pop(partition, None)  # a poll that failed may have left one
        deadline = time.monotonic() + self._failures.timeout
        while True:
            try:
                self._consumer.seek(ClientPartition(*partition, offset))
            except KafkaException as error:
                # The client does not fetch a newly assigned partition yet.
                if error_of(error).code() != KafkaError._STATE or time.monotonic() >= deadline:
                    doing = f"seek in topic {partition.topic!r}"
                    raise self._failures.streams_error_from(error, doing) from error
                time.sleep(_PAUSE)
            else:
                return

    def pause(self, partitions: Collection[TopicPartition], /) -> None:
        self._consumer.pause([ClientPartition(*name) for name in partitions])

    def resume(self, partitions: Collection[TopicPartition], /) -> None:
        self._consumer.resume([ClientPartition(*name) for name in partitions])

    def poll(self, timeout_ms: int, max_records: int, /) -> Sequence[ConsumerRecord]:
        deadline = time.monotonic() + timeout_ms / 1000
        while not self._woken.take():
            left = deadline - time.monotonic()
            records = self._fetch(max(0.0, min(left, _SLICE)), max_records)
            if records or left <= 0:
                return records
        return []

    def take_ends(self) -> Mapping[TopicPartition, int]:
        ends, self._ends = self._ends, {}
        return ends

    def wakeup(self) -> None:
        self._woken.set()

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        group = needed_group(self._group)
        if not offsets:
            return
        consumer, positions = self._consumer, client_partitions(offsets)
        timeout = self._failures.timeout

        def ask() -> list[ClientPartition]:
            return consumer.commit(offsets=positions, asynchronous=False) or []

        try:
            if not self._in_callback:
                check_answers(self._calls.run(ask, timeout))  # the client retries by itself
                return
            # Inside a callback no other thread may use the client, and `commit` has no timeout.
            # `committed` has one, and returns after the commit.
            consumer.commit(offsets=positions, asynchronous=True)
            committed = consumer.committed(positions, timeout=timeout)
            check_answers(committed)
        except KafkaException as error:
            raise self._uncommitted(error) from error
        if _offsets_of(committed) != _offsets_of(positions):
            raise CommitFailedError(group)

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], on_completion: OnCommitted, /
    ) -> None:
        needed_group(self._group)
        if not offsets:
            on_completion(None)
            return
        positions = client_partitions(offsets)
        self._committing.append((positions, on_completion))
        try:
            self._consumer.commit(offsets=positions, asynchronous=True)
        except KafkaException as error:
            self._on_commit(error_of(error), positions)

    def group_metadata(self) -> KafkaGroupMetadata:
        return KafkaGroupMetadata(
            needed_group(self._group), self._consumer.consumer_group_metadata()
        )

    def close(self) -> None:
        with suppress(KafkaException):
            self._calls.run(self._consumer.close, min(_CLOSE_SECONDS, self._failures.timeout))
        self._calls.close()
        for positions, _ in list(self._committing):
            self._on_commit(KafkaError(KafkaError._TIMED_OUT), positions)
        listener, self._listener = self._listener, None
        if listener is not None and self._owned:
            listener.lost(sorted(self._owned))
        self._raise_failed()

    def _await_revocation(self) -> None:
        """Wait until the client has released its partitions, which it does inside `poll`."""
        deadline = time.monotonic() + self._failures.timeout
        while self._consumer.assignment() and time.monotonic() < deadline:
            self._consumer.poll(_PAUSE)

    def _fetch(self, timeout: float, max_records: int) -> list[ConsumerRecord]:
        # `consume` waits until it has all records, so wait for the first one alone.
        first = self._consumer.poll(timeout)
        self._raise_failed()
        if first is None:
            return []
        rest = self._consumer.consume(max_records - 1, 0) if max_records > 1 else []
        self._raise_failed()
        messages: list[Any] = []
        fetched: list[Any] = [first, *rest]
        for message in fetched:
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                name = TopicPartition(message.topic(), message.partition())
                self._ends[name] = message.offset()
            else:
                self._judge(error, message)
        return records_from_messages(messages)

    def _judge(self, error: KafkaError, message: Any) -> None:
        """Raise an error that the client does not retry."""
        if error.code() in _RETRIABLE:
            return
        if error.code() in UNKNOWN_TOPIC and self._listener is not None:
            return  # it may still be created
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise OffsetOutOfRangeError(
                message.topic(), message.partition(), offset=message.offset(), beginning=0
            )
        raise self._failures.streams_error_from(error, "read", topic=message.topic())

    def _on_assign(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if self._listener is None:
            return
        names = _sorted_names(partitions)
        self._owned.update(names)
        self._in_callback = True
        try:
            positions = _client_positions(self._listener.assigned(names))
        except BaseException as error:
            self._failed = error
            positions = partitions
        finally:
            self._in_callback = False
        if self._is_incremental:
            consumer.incremental_assign(positions)
        else:
            consumer.assign(positions)

    def _callback(
        self, notify: Callable[[list[TopicPartition]], None]
    ) -> Callable[[Consumer, list[ClientPartition]], None]:
        def callback(_: Consumer, partitions: list[ClientPartition]) -> None:
            if self._listener is None:
                return
            names = _sorted_names(partitions)
            self._owned.difference_update(names)
            self._in_callback = True
            try:
                notify(names)
            except BaseException as error:
                self._failed = error
            finally:
                self._in_callback = False

        return callback

    def _on_commit(self, error: KafkaError | None, partitions: list[ClientPartition]) -> None:
        """Report an asynchronous commit to the function that waits for it."""
        committed = _offsets_of(partitions)
        for index, (positions, on_completion) in enumerate(self._committing):
            if _offsets_of(positions) == committed:
                del self._committing[index]
                errors = [error, *(partition.error for partition in partitions)]
                cause = next((each for each in errors if each is not None), None)
                on_completion(None if cause is None else self._uncommitted(cause))
                return

    def _uncommitted(self, failure: KafkaException | KafkaError) -> StreamsError:
        group = needed_group(self._group)
        doing = f"commit offsets of group {group!r}"
        return self._failures.streams_error_from(failure, doing, group=group)

    def _raise_failed(self) -> None:
        """Raise an error of a callback: the client would only print it."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


def _sorted_names(partitions: Iterable[ClientPartition]) -> list[TopicPartition]:
    return sorted(TopicPartition(name.topic, name.partition) for name in partitions)


def _offsets_of(positions: Iterable[ClientPartition]) -> set[tuple[str, int, int]]:
    return {(position.topic, position.partition, position.offset) for position in positions}


def _client_positions(positions: Mapping[TopicPartition, int]) -> list[ClientPartition]:
    return [ClientPartition(*name, offset) for name, offset in positions.items()]
