"""Consumer groups of Kafka: committed offsets and members."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from headrace.brokers.kafka.admin import KafkaAdmin, MissingError
from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.error_translation import RETRIABLE, TimedCalls, error_of
from headrace.brokers.kafka.topics import KafkaTopics, check_answers, client_partitions
from headrace.brokers.log import MemberDescription, OffsetAndMetadata, TopicPartition
from headrace.errors import UnstableOffsetsError

# The broker's answers if the group has members.
_OF_MEMBERS = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}

_LOOK_SECONDS = 3.0
_MOST_OPEN = 16
"""How many groups have a consumer that stays open; an application uses a few."""


class KafkaGroups:
    """Groups of a cluster, seen from outside.

    Offsets go through a consumer that never joins its group, because it finds a new coordinator by
    itself. The admin client crashes the process if the coordinator has moved
    (confluentinc/librdkafka#5040).
    """

    def __init__(
        self, client_factory: ClientFactory, admin: KafkaAdmin, topics: KafkaTopics
    ) -> None:
        self._client_factory = client_factory
        self._failures = client_factory.failures
        self._admin = admin
        self._topics = topics
        self._opened: dict[str, Consumer] = {}
        self._calls = TimedCalls()

    def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if not offsets:
            return
        self._topics.recheck_partitions(offsets)
        deadline = time.monotonic() + self._failures.timeout

        def ask(_: float) -> None:
            commit: Any = self._consumer(group).commit
            call = partial(commit, offsets=client_partitions(offsets), asynchronous=False)
            # Not abandoned before the deadline: it might arrive after the next commit.
            check_answers(self._calls.run(call, deadline - time.monotonic()))

        try:
            self._failures.call_with_retries(ask)
        except KafkaException as error:
            self._forget(group)
            if error_of(error).code() in _OF_MEMBERS:
                error = KafkaException(KafkaError(KafkaError.NON_EMPTY_GROUP))
            doing = f"commit offsets of group {group!r}"
            raise self._failures.streams_error_from(error, doing, group=group) from error

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group, once no open transaction holds some."""
        names = self._admin.partitions() if partitions is None else partitions
        requested = [ClientPartition(*name) for name in names]
        if not requested:
            return {}

        def ask(seconds: float) -> list[ClientPartition]:
            answers = self._consumer(group).committed(requested, timeout=seconds)
            check_answers(answers)
            return answers

        try:
            answers = self._failures.call_with_retries(
                ask, on_failure=lambda _: self._forget(group)
            )
        except KafkaException as error:
            if error_of(error).code() in RETRIABLE and self._is_held_back(group, requested):
                msg = (
                    f"The broker at {self._failures.servers} held back offsets of group {group!r} "
                    f"for {self._failures.timeout:g} s, because a transaction that commits some "
                    "has not ended. The broker ends it after its `transaction.timeout.ms`. If it "
                    "does not, it has lost the end: find it with Kafka's `kafka-transactions.sh "
                    "find-hanging`."
                )
                raise UnstableOffsetsError(msg) from error
            doing = f"fetch offsets of group {group!r}"
            raise self._failures.streams_error_from(error, doing, group=group) from error
        return {
            TopicPartition(answer.topic, answer.partition): OffsetAndMetadata(
                answer.offset, answer.metadata or ""
            )
            for answer in sorted(answers)
            if answer.offset >= 0
        }

    def _is_held_back(self, group: str, partitions: list[ClientPartition]) -> bool:
        """Return whether the broker answers a consumer that does not wait for transactions."""
        consumer = self._client_factory.consumer(group_id=group, isolation_level="read_uncommitted")
        seconds = min(_LOOK_SECONDS, self._failures.attempt_timeout)
        try:
            check_answers(consumer.committed(partitions, timeout=seconds))
        except KafkaException:
            return False
        return True

    def names(self) -> list[str]:
        listed = self._admin.request(
            "list its groups",
            lambda admin, seconds: admin.list_consumer_groups(request_timeout=seconds),
        )
        for error in listed.errors:
            raise self._failures.streams_error_from(error, "list its groups")
        return sorted(group.group_id for group in listed.valid)

    def members(self, group: str) -> list[MemberDescription]:
        try:
            described = self._admin.request(
                f"describe group {group!r}",
                lambda admin, seconds: admin.describe_consumer_groups(
                    [group], request_timeout=seconds
                )[group],
                group=group,
                missing=KafkaError.GROUP_ID_NOT_FOUND,
            )
        except MissingError:
            return []
        return [
            MemberDescription(
                member.member_id,
                member.client_id,
                tuple(
                    sorted(
                        TopicPartition(name.topic, name.partition)
                        for name in member.assignment.topic_partitions
                    )
                ),
            )
            for member in described.members
        ]

    def delete(self, group: str) -> None:
        with suppress(MissingError):
            self._admin.request(
                f"delete group {group!r}",
                lambda admin, seconds: admin.delete_consumer_groups(
                    [group], request_timeout=seconds
                )[group],
                group=group,
                missing=KafkaError.GROUP_ID_NOT_FOUND,
            )

    def metadata(self, group: str) -> Any:
        """Return what a transaction needs to commit for a group without members."""
        return self._consumer(group).consumer_group_metadata()

    def close(self) -> None:
        self._opened.clear()
        self._calls.close()

    def _consumer(self, group: str) -> Consumer:
        if group not in self._opened:
            if len(self._opened) >= _MOST_OPEN:
                self._forget(next(iter(self._opened)))
            self._opened[group] = self._client_factory.consumer(
                group_id=group, enable_auto_commit=False, isolation_level="read_committed"
            )
        return self._opened[group]

    def _forget(self, group: str) -> None:
        """Drop the consumer of a group: the next one looks up the coordinator again."""
        if (consumer := self._opened.pop(group, None)) is not None:
            consumer.poll(0)
