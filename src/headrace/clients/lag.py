"""How far groups have read, and how much lies before them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.brokers import TopicLog, TopicPartition


class PartitionLag(NamedTuple):
    """How far a group has come in one partition."""

    topic: str
    partition: int
    committed: int | None
    """The offset the group goes on at; None if it has not committed one."""
    end: int
    lag: int
    """How many offsets lie before the group; without a commit all that are there."""


def lag_of(log: TopicLog, group: str, topics: Iterable[str] = ()) -> list[PartitionLag]:
    """Return how far a group has come: in what it committed for, and in further topics.

    Offsets have holes, so that the lag may be more than the records that are left.

    Args:
        log: Where the topics are.
        group: Its name; of an application the ``application_id``.
        topics: Topics to count although the group has committed nothing for them.

    Raises:
        UnknownTopicError: One of the further topics does not exist.
    """
    wanted = [
        TopicPartition(topic, number)
        for topic in topics
        for number in range(log.partition_count(topic))
    ]
    committed = committed_of_existing(log, group, log.list_topics())
    partitions = sorted({*wanted, *committed})
    ends = log.end_offsets(partitions)
    begins = log.beginning_offsets([name for name in partitions if name not in committed])
    lags = []
    for name in partitions:
        offset = committed.get(name)
        start = begins[name] if offset is None else offset
        lags.append(PartitionLag(*name, offset, ends[name], max(0, ends[name] - start)))
    return lags


def committed_of_existing(
    log: TopicLog, group: str, there: Iterable[str]
) -> dict[TopicPartition, int]:
    """Return what a group committed for topics that still exist: those of ``there``.

    A broker may keep offsets of a deleted topic for a while.
    """
    committed = log.committed_offsets(group)
    existing = {name.topic for name in committed}.intersection(there)
    counts = {topic: log.partition_count(topic) for topic in existing}
    return {
        name: kept.offset
        for name, kept in committed.items()
        if name.partition < counts.get(name.topic, 0)
    }
