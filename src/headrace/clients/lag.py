"""The committed offsets and the lag of groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.brokers import TopicLog, TopicPartition


class PartitionLag(NamedTuple):
    """The lag of a group in one partition."""

    topic: str
    partition: int
    committed: int | None
    """The next offset of the group; None if it has not committed one."""
    end: int
    lag: int
    """How many offsets the group has not read; without a commit all that exist."""


def lag_of(log: TopicLog, group: str, topics: Iterable[str] = ()) -> list[PartitionLag]:
    """Return the lag of a group, in partitions with a committed offset and in further ``topics``.

    Offsets have holes, so the lag may exceed the number of unread records.

    Raises:
        UnknownTopicError: One of the further topics does not exist.
    """
    further = [
        TopicPartition(topic, number)
        for topic in topics
        for number in range(log.partition_count(topic))
    ]
    committed = committed_of_existing(log, group, log.list_topics())
    partitions = sorted({*further, *committed})
    ends = log.end_offsets(partitions)
    begins = log.beginning_offsets([name for name in partitions if name not in committed])
    lags = []
    for name in partitions:
        offset = committed.get(name)
        start = begins[name] if offset is None else offset
        lags.append(PartitionLag(*name, offset, ends[name], max(0, ends[name] - start)))
    return lags


def committed_of_existing(
    log: TopicLog, group: str, topics: Iterable[str]
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group for existing topics.

    A broker may keep offsets of a deleted topic.
    """
    committed = log.committed_offsets(group)
    existing = {name.topic for name in committed}.intersection(topics)
    counts = {topic: log.partition_count(topic) for topic in existing}
    return {
        name: offset
        for name, (offset, _) in committed.items()
        if name.partition < counts.get(name.topic, 0)
    }
