"""Topics, offsets and groups of Kafka, through its admin client."""

# pyright: reportPrivateImportUsage=false
# The client's admin module is documented, but does not list its names.

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.brokers.kafka.admin import KafkaAdmin, result
from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.error_translation import UNKNOWN_TOPIC, error_of
from headrace.brokers.log import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from headrace.brokers.topic_names import checked_topic_name
from headrace.errors import BrokerError, BrokerUnavailableError, UnknownTopicError

T = TypeVar("T")

_PAUSE = 0.02
_REPLICATION_FACTOR = "replication.factor"
_BROKERS_CHOICE = "-1"
_NO_RECORD = -1
"""The offset of a timestamp behind all records."""


class KafkaTopics:
    """Requests to a cluster besides reading and writing."""

    def __init__(self, client_factory: ClientFactory, admin: KafkaAdmin) -> None:
        self._failures = client_factory.failures
        self._admin = admin
        self.counts: dict[str, int] = {}
        """Partition counts by topic, as last fetched; topics may have grown."""

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic, and wait until it can be used."""
        checked_topic_name(topic)
        topic_settings = dict(settings)
        # Kafka takes it beside the settings of a topic, not among them.
        replicas = _replicas(topic, topic_settings.pop(_REPLICATION_FACTOR, _BROKERS_CHOICE))
        new = NewTopic(topic, partitions, replication_factor=replicas, config=topic_settings)
        doing = f"create topic {topic!r}"
        try:
            self._admin.changed(
                doing,
                topic,
                lambda admin, seconds: admin.create_topics([new], request_timeout=seconds)[topic],
                done=frozenset({KafkaError.TOPIC_ALREADY_EXISTS}),
            )
        except BrokerError as error:
            if not _is_about_replicas(error.__cause__):
                raise
            msg = (
                f"{error} `{_REPLICATION_FACTOR}` is {replicas}. Set it to no more than the "
                "brokers that run."
            )
            raise BrokerError(msg) from error
        self._await(doing, lambda: self._count(topic) == partitions)
        self._admin.has_created(topic)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self._admin.has_deleted(topic)
        doing = f"delete topic {topic!r}"
        self._admin.changed(
            doing,
            topic,
            lambda admin, seconds: admin.delete_topics([topic], request_timeout=seconds)[topic],
            done=UNKNOWN_TOPIC,
        )
        self.counts.pop(topic, None)
        self._await(doing, lambda: topic not in self._admin.topics())

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
        self._admin.changed(
            doing,
            topic,
            lambda admin, seconds: admin.create_partitions([new], request_timeout=seconds)[topic],
            done=frozenset({KafkaError.INVALID_PARTITIONS}),
        )
        self._await(doing, lambda: self._count(topic) == partitions)

    def alter(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """Change settings, and wait until the broker shows them."""
        self.count(topic)  # raises with similar names: the broker would name none
        if not settings:
            return
        doing = f"change settings of topic {topic!r}"
        entries = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE
                if value is None
                else AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._admin.changed(
            doing,
            topic,
            lambda admin, seconds: admin.incremental_alter_configs(
                [resource], request_timeout=seconds
            )[resource],
            done=frozenset(),
        )

        def is_shown() -> bool:
            own = self.describe(topic).settings
            return all(own.get(name) == value for name, value in settings.items())

        self._await(doing, is_shown)

    def count(self, topic: str) -> int:
        return self._partitions(topic)[0]

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        names = list(topics)
        if not names:
            return {}

        def ask(admin: AdminClient, seconds: float) -> dict[str, str]:
            answers = admin.describe_topics(TopicCollection(names), request_timeout=seconds)
            return {
                topic: str(result(answer, seconds).topic_id) for topic, answer in answers.items()
            }

        try:
            return self._admin.call_with_retries(ask)
        except KafkaException as error:
            if error_of(error).code() in UNKNOWN_TOPIC:
                for topic in names:
                    self.count(topic)  # raises with the topic and similar names
            raise self._failures.streams_error_from(error, "describe topics") from error

    def describe(self, topic: str) -> TopicDescription:
        count = self.count(topic)
        own = {
            name: str(entry.value)
            for name, entry in self._settings(topic).items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        return TopicDescription(topic, count, own)

    def effective_settings(self, topic: str) -> dict[str, str]:
        """Return all settings of a topic, with the broker's where it has none of its own."""
        return {name: str(entry.value) for name, entry in self._settings(topic).items()}

    def _settings(self, topic: str) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries: dict[str, Any] = self._admin.request(
            f"describe topic {topic!r}",
            lambda admin, seconds: admin.describe_configs([resource], request_timeout=seconds)[
                resource
            ],
            topic=topic,
        )
        return entries

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        offsets = self._offsets({name: OffsetSpec.earliest() for name in partitions})
        return {name: answer.offset for name, answer in offsets.items()}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offsets of partitions."""
        offsets = self._offsets({name: OffsetSpec.latest() for name in partitions})
        return {name: answer.offset for name, answer in offsets.items()}

    def uncommitted_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks of partitions."""
        specs = {name: OffsetSpec.latest() for name in partitions}
        offsets = self._offsets(specs, IsolationLevel.READ_UNCOMMITTED)
        return {name: answer.offset for name, answer in offsets.items()}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        offsets = self._offsets(
            {name: OffsetSpec.for_timestamp(time) for name, time in timestamps.items()}
        )
        return {
            name: None if answer.offset == _NO_RECORD else answer
            for name, answer in offsets.items()
        }

    def _offsets(
        self,
        specs: Mapping[TopicPartition, Any],
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        if not specs:
            return {}
        requests = {ClientPartition(*name): spec for name, spec in specs.items()}

        def ask(admin: AdminClient, seconds: float) -> dict[TopicPartition, OffsetAndTimestamp]:
            answers = admin.list_offsets(
                requests, isolation_level=isolation, request_timeout=seconds
            )
            try:
                results = {name: result(answer, seconds) for name, answer in answers.items()}
            except KafkaException as error:
                if error_of(error).code() in UNKNOWN_TOPIC | {KafkaError._NOENT}:
                    self.recheck_partitions(specs)
                raise
            if any(result.offset < _NO_RECORD for result in results.values()):
                # The client's answer for a leader that it could not reach.
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return {
                TopicPartition(name.topic, name.partition): OffsetAndTimestamp(
                    result.offset, result.timestamp
                )
                for name, result in results.items()
            }

        self.check_partitions(specs)
        try:
            # A new topic may have no leader yet.
            return self._admin.call_with_retries(ask, also=UNKNOWN_TOPIC | {KafkaError._NOENT})
        except KafkaException as error:
            raise self._failures.streams_error_from(error, "list offsets") from error

    def check_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuse partitions that do not exist: the client would wait for them.

        Partitions that existed before are not checked again.
        """
        for topic, number in partitions:
            count = self.counts.get(topic, 0)
            if number >= count:
                count = self.count(topic)
            if not 0 <= number < count:
                raise UnknownTopicError(topic, partition=number)

    def recheck_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Check partitions again, because they may have been deleted."""
        partitions = list(partitions)
        for topic, _ in partitions:
            self.counts.pop(topic, None)
        self.check_partitions(partitions)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.recheck_partitions(offsets)
        for (topic, number), offset in offsets.items():
            self._admin.request(
                f"delete records of topic {topic!r}",
                partial(_ask_to_delete, ClientPartition(topic, number, offset)),
                topic=topic,
            )

    def _partitions(self, topic: str) -> tuple[int, bool]:
        """Return how many partitions a topic has, and whether all have a leader."""
        checked_topic_name(topic)
        self.counts.pop(topic, None)
        described = self._admin.request(
            f"describe topic {topic!r}",
            lambda admin, seconds: admin.describe_topics(
                TopicCollection([topic]), request_timeout=seconds
            )[topic],
            topic=topic,
        )
        leaders = [partition.leader for partition in described.partitions]
        self.counts[topic] = len(leaders)
        return len(leaders), all(leader is not None for leader in leaders)

    def _count(self, topic: str) -> int:
        """Return the number of partitions; 0 while one has no leader."""
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


def _replicas(topic: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        msg = f"`{_REPLICATION_FACTOR}` of topic {topic!r} is {text!r}. Use a whole number."
        raise BrokerError(msg) from None


def _is_about_replicas(failure: BaseException | None) -> bool:
    return (
        isinstance(failure, KafkaException)
        and error_of(failure).code() == KafkaError.INVALID_REPLICATION_FACTOR
    )


def _ask_to_delete(before: ClientPartition, admin: AdminClient, seconds: float) -> Future[Any]:
    (answer,) = admin.delete_records([before], request_timeout=seconds).values()
    return answer


def check_answers(answers: Iterable[ClientPartition]) -> None:
    """Raise the error of one of several partitions."""
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
