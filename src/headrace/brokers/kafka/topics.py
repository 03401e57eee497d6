"""Topics, offsets and groups of Kafka, through its admin client."""

# pyright: reportPrivateImportUsage=false
# The client's admin module is documented, but does not list its names.

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.brokers.kafka.connecting import Connector
from headrace.brokers.kafka.failures import UNKNOWN_TOPIC, error_of
from headrace.brokers.log import (
    MemberDescription,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from headrace.brokers.topic_names import checked_topic_name, unknown_topic
from headrace.errors import BrokerError, BrokerUnavailableError, StreamsError, UnknownTopicError

T = TypeVar("T")

_PAUSE = 0.02
_LEADER_CHANGED = {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH}
# The broker's own topics.
_INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


class KafkaTopics:
    """What can be asked of a cluster besides reading and writing."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._failures = connector.failures
        self._opened: AdminClient | None = None
        self.counts: dict[str, int] = {}
        """How many partitions topics had when they were last asked for; they may have grown."""

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic, and wait until it can be used."""
        checked_topic_name(topic)
        new = NewTopic(topic, partitions, config=dict(settings))
        doing = f"create topic {topic!r}"
        self._asked(doing, lambda: self._admin.create_topics([new])[topic], topic=topic)
        self._await(doing, lambda: self._count(topic) == partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        doing = f"delete topic {topic!r}"
        self._asked(doing, lambda: self._admin.delete_topics([topic])[topic], topic=topic)
        self.counts.pop(topic, None)
        self._await(doing, lambda: topic not in self.names())

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions, and wait until they can be used."""
        count = self.count(topic)
        if partitions < count:
            msg = f"Topic {topic!r} has {count} partitions, and cannot have fewer. Create another."
            raise BrokerError(msg)
        if partitions == count:
            return
        doing = f"add partitions to topic {topic!r}"
        new = NewPartitions(topic, partitions)
        self._asked(doing, lambda: self._admin.create_partitions([new])[topic], topic=topic)
        self._await(doing, lambda: self._count(topic) == partitions)

    def names(self) -> list[str]:
        """Return the names of all topics."""
        try:
            listed = self._admin.list_topics(timeout=self._failures.timeout)
        except KafkaException as error:
            self._admin.poll(0)
            raise self._failures.translated(error, "list its topics") from error
        return sorted(set(listed.topics) - _INTERNAL)

    def count(self, topic: str) -> int:
        """Return how many partitions a topic has now."""
        return self._partitions(topic)[0]

    def describe(self, topic: str) -> TopicDescription:
        """Return a topic with what was set for it."""
        count = self.count(topic)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._asked(
            f"describe topic {topic!r}",
            lambda: self._admin.describe_configs([resource])[resource],
            topic=topic,
        )
        own = {
            name: str(entry.value)
            for name, entry in entries.items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        return TopicDescription(topic, count, own)

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions."""
        found = self._offsets({name: OffsetSpec.earliest() for name in partitions})
        return {name: each.offset for name, each in found.items()}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offsets of partitions."""
        found = self._offsets({name: OffsetSpec.latest() for name in partitions})
        return {name: each.offset for name, each in found.items()}

    def at_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offsets at or after timestamps."""
        found = self._offsets(
            {name: OffsetSpec.for_timestamp(time) for name, time in timestamps.items()}
        )
        return {name: each if each.offset >= 0 else None for name, each in found.items()}

    def _offsets(
        self, wanted: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        if not wanted:
            return {}
        asked = {ClientPartition(*name): spec for name, spec in wanted.items()}

        def ask() -> dict[TopicPartition, OffsetAndTimestamp]:
            answers = self._admin.list_offsets(
                asked,
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._failures.timeout,
            )
            try:
                results = {name: self._result(answer) for name, answer in answers.items()}
            except KafkaException as error:
                code = error_of(error).code()
                if code in UNKNOWN_TOPIC | {KafkaError._NOENT}:
                    self.recheck_partitions(wanted)
                elif code in _LEADER_CHANGED:
                    self._opened = None  # the client believes its old leader for minutes
                raise
            return {
                TopicPartition(name.topic, name.partition): OffsetAndTimestamp(
                    result.offset, result.timestamp
                )
                for name, result in results.items()
            }

        self.check_partitions(wanted)
        try:
            # A topic that is there may be so new that it has no leader yet.
            also = UNKNOWN_TOPIC | _LEADER_CHANGED | {KafkaError._NOENT}
            return self._failures.settled(ask, also=also)
        except KafkaException as error:
            self._admin.poll(0)
            raise self._failures.translated(error, "list offsets") from error

    def check_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuse partitions that do not exist: the client would wait for them.

        What was seen before is taken to be there, so that nothing is asked each time.
        """
        for topic, number in partitions:
            count = self.counts.get(topic, 0)
            if number >= count:
                count = self.count(topic)
            if not 0 <= number < count:
                raise UnknownTopicError(topic, partition=number)

    def recheck_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuse partitions that do not exist any more."""
        partitions = list(partitions)
        for topic, _ in partitions:
            self.counts.pop(topic, None)
        self.check_partitions(partitions)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Let partitions begin at an offset."""
        self.recheck_partitions(offsets)
        for (topic, number), offset in offsets.items():
            self._asked(
                f"delete records of topic {topic!r}",
                partial(self._ask_to_delete, ClientPartition(topic, number, offset)),
                topic=topic,
            )

    def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit for a group without members."""
        self.recheck_partitions(offsets)
        request = ConsumerGroupTopicPartitions(group, client_partitions(offsets))
        self._group_offsets(
            f"commit offsets of group {group!r}",
            group,
            lambda: self._admin.alter_consumer_group_offsets([request])[group],
        )

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a group committed, once no transaction is about to change it."""
        wanted = None if partitions is None else [ClientPartition(*name) for name in partitions]
        if wanted is not None and not wanted:
            return {}
        request = ConsumerGroupTopicPartitions(group, wanted)
        answer = self._group_offsets(
            f"fetch offsets of group {group!r}",
            group,
            lambda: self._admin.list_consumer_group_offsets([request], require_stable=True)[group],
        )
        return {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(
                each.offset, each.metadata or ""
            )
            for each in sorted(answer)
            if each.offset >= 0
        }

    def groups(self) -> list[str]:
        """Return the names of all groups."""
        listed = self._asked("list its groups", self._admin.list_consumer_groups)
        for error in listed.errors:
            raise self._failures.translated(error, "list its groups")
        return sorted(group.group_id for group in listed.valid)

    def members(self, group: str) -> list[MemberDescription]:
        """Return the members of a group."""
        try:
            described = self._asked(
                f"describe group {group!r}",
                lambda: self._admin.describe_consumer_groups([group])[group],
                missing=KafkaError.GROUP_ID_NOT_FOUND,
            )
        except _MissingError:
            return []
        return [
            MemberDescription(
                member.member_id,
                member.client_id,
                tuple(
                    sorted(
                        TopicPartition(each.topic, each.partition)
                        for each in member.assignment.topic_partitions
                    )
                ),
            )
            for member in described.members
        ]

    def delete_group(self, group: str) -> None:
        """Forget a group."""
        with suppress(_MissingError):
            self._asked(
                f"delete group {group!r}",
                lambda: self._admin.delete_consumer_groups([group])[group],
                group=group,
                missing=KafkaError.GROUP_ID_NOT_FOUND,
            )

    @property
    def _admin(self) -> AdminClient:
        if self._opened is None:
            self._opened = self._connector.admin()
        return self._opened

    def _ask_to_delete(self, before: ClientPartition) -> Future[Any]:
        (answer,) = self._admin.delete_records([before]).values()
        return answer

    def _partitions(self, topic: str) -> tuple[int, bool]:
        """Return how many partitions a topic has, and whether all have a leader."""
        checked_topic_name(topic)
        self.counts.pop(topic, None)
        described = self._asked(
            f"describe topic {topic!r}",
            lambda: self._admin.describe_topics(TopicCollection([topic]))[topic],
            topic=topic,
        )
        leaders = [partition.leader for partition in described.partitions]
        self.counts[topic] = len(leaders)
        return len(leaders), all(leader is not None for leader in leaders)

    def _count(self, topic: str) -> int:
        """Return how many partitions can be used; 0 if not all can."""
        try:
            count, ready = self._partitions(topic)
        except UnknownTopicError:
            return 0
        return count if ready else 0

    def _await(self, doing: str, is_done: Callable[[], bool]) -> None:
        """Wait until all brokers know of a change."""
        deadline = time.monotonic() + self._failures.timeout
        while not is_done():
            if time.monotonic() >= deadline:
                msg = (
                    f"The broker at {self._failures.servers} agreed to {doing}, but it is not done "
                    f"after {self._failures.timeout:g} s. Look at the broker's log."
                )
                raise BrokerUnavailableError(msg)
            time.sleep(_PAUSE)

    def _asked(
        self,
        doing: str,
        ask: Callable[[], Future[T]],
        *,
        topic: str | None = None,
        group: str = "",
        missing: int | None = None,
    ) -> T:
        try:
            return self._failures.settled(lambda: self._result(ask()))
        except KafkaException as error:
            self._admin.poll(0)
            if missing is not None and error_of(error).code() == missing:
                raise _MissingError from error
            if topic is not None and error_of(error).code() in UNKNOWN_TOPIC:
                raise unknown_topic(topic, self.names()) from None
            raise self._failures.translated(error, doing, topic=topic, group=group) from error

    def _group_offsets(
        self, doing: str, group: str, ask: Callable[[], Future[Any]]
    ) -> Sequence[ClientPartition]:
        def checked() -> Sequence[ClientPartition]:
            answers: list[ClientPartition] = self._result(ask()).topic_partitions
            check_answers(answers)
            return answers

        try:
            return self._failures.settled(checked)
        except KafkaException as error:
            self._admin.poll(0)
            code = error_of(error).code()
            if code in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION):
                # The broker's way of saying that others are members.
                error = KafkaException(KafkaError(KafkaError.NON_EMPTY_GROUP))
            raise self._failures.translated(error, doing, group=group) from error

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result(self._failures.timeout + 1)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


class _MissingError(StreamsError):
    """What was asked about is not there."""


def check_answers(answers: Iterable[ClientPartition]) -> None:
    """Raise what went wrong with one of several partitions."""
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)


def client_partitions(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[ClientPartition]:
    """Return offsets as the client takes them."""
    return [
        ClientPartition(topic, number, offset, metadata)
        for (topic, number), (offset, metadata) in offsets.items()
    ]
