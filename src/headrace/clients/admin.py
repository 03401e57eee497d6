"""AdminClient: topics, groups and their offsets, in Kafka or in the embedded log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

from headrace.brokers import (
    MemberDescription,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
    open_log,
)
from headrace.brokers.topic_names import is_internal
from headrace.clients.consumer import offsets_from
from headrace.clients.lag import PartitionLag, lag_of
from headrace.clients.log_naming import naming_log
from headrace.clients.offsets import (
    OffsetChange,
    ResetTo,
    execute_group_reset,
    plan_group_reset,
)
from headrace.clients.settings import ClientConfig, client_config
from headrace.config.settings import ClientSettings
from headrace.errors import TopicExistsError
from headrace.records import Timestamp, timestamp_ms


class AdminClient:
    """Manages topics, groups and their offsets. One thread uses it.

    Args:
        config: A mapping of Kafka's dotted names, or the config of an application.
        settings: Kafka's settings as keywords, which win. Without ``bootstrap_servers`` it manages
            the embedded log.

    Raises:
        ConfigError: Settings that cannot be used, all of them together.
    """

    def __init__(
        self, config: ClientConfig | None = None, /, **settings: Unpack[ClientSettings]
    ) -> None:
        merged, _ = client_config("admin", config, settings)
        self._config = merged
        self._log = open_log(merged)

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @naming_log
    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        settings: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> bool:
        """Create a topic, and return whether it is new.

        Args:
            topic: Its name.
            partitions: How many partitions it has.
            replication_factor: On how many brokers each partition is; left out: the broker's
                default. Without effect on the embedded log.
            settings: ``cleanup.policy``, ``retention.ms`` and the like, by Kafka's names.
            if_not_exists: Return False if the topic exists, whatever its partitions are.

        Raises:
            TopicExistsError: The topic exists.
        """
        own = dict(settings or {})
        if replication_factor is not None:
            own["replication.factor"] = str(replication_factor)
        try:
            self._log.create_topic(topic, partitions=partitions, settings=own)
        except TopicExistsError:
            if if_not_exists:
                return False
            raise
        return True

    @naming_log
    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records and its committed offsets."""
        self._log.delete_topic(topic)

    @naming_log
    def alter_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, str | None] | None = None,
    ) -> None:
        """Change a topic.

        Args:
            topic: Its name.
            partitions: How many partitions it then has; never fewer than before.
            settings: Settings by Kafka's names; None gives one back to the broker.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        if settings:
            self._log.alter_topic(topic, settings)
        if partitions is not None:
            self._log.grow_topic(topic, partitions=partitions)

    @naming_log
    def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of topics, sorted; those of applications too if ``internal`` is set."""
        return [topic for topic in self._log.list_topics() if internal or not is_internal(topic)]

    @naming_log
    def describe_topic(self, topic: str) -> TopicDescription:
        """Return a topic with its partitions and its own settings.

        Raises:
            UnknownTopicError: There is no such topic; the error has similar names.
        """
        return self._log.describe_topic(topic)

    @naming_log
    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that still has its record."""
        return self._log.beginning_offsets(partitions)

    @naming_log
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last committed record of each partition."""
        return self._log.end_offsets(partitions)

    @naming_log
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, Timestamp]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time, if there is one."""
        times = {partition: timestamp_ms(time) for partition, time in timestamps.items()}
        return self._log.offsets_for_times(times)

    @naming_log
    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records of each partition before an offset."""
        self._log.delete_records(offsets)

    @naming_log
    def list_groups(self) -> list[str]:
        """Return the names of all groups, sorted."""
        return self._log.list_groups()

    @naming_log
    def describe_group(self, group: str) -> Sequence[MemberDescription]:
        """Return the members of a group; a group that does not exist has none."""
        return self._log.describe_group(group)

    @naming_log
    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets, if it exists.

        Raises:
            GroupNotEmptyError: The group has members.
        """
        self._log.delete_group(group)

    @naming_log
    def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group."""
        return self._log.committed_offsets(group)

    @naming_log
    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Commit offsets for a group.

        Raises:
            GroupNotEmptyError: The group has members.
        """
        self._log.commit_offsets(group, offsets_from(offsets))

    @naming_log
    def reset_group_offsets(
        self,
        group: str,
        to: ResetTo,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Reset a group, and return its offsets before and after.

        Args:
            group: Its name.
            to: Where it starts over: ``ResetTo("earliest")``, ``ResetTo("offset", 42)``.
            partitions: Which partitions; left out: those with a committed offset.
            dry_run: Change nothing.

        Raises:
            GroupNotEmptyError: The group has members.
            StreamsError: The group belongs to an application, which `headrace reset` resets.
        """
        changes = plan_group_reset(self._log, group, to, partitions)
        if not dry_run:
            execute_group_reset(self._log, group, changes)
        return changes

    @naming_log
    def lag(self, group: str, topics: Iterable[str] = ()) -> list[PartitionLag]:
        """Return the lag of a group, in partitions with a committed offset and in ``topics``."""
        return lag_of(self._log, group, topics)

    @naming_log
    def close(self) -> None:
        """Close files and connections."""
        self._log.close()
