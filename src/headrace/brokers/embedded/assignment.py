"""Kafka's range and sticky assignors; leadership relies on the sticky one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.brokers.log import TopicPartition


def assign_ranges(
    counts: Mapping[str, int], topics: Mapping[str, Sequence[str]]
) -> dict[str, list[TopicPartition]]:
    """Give each member a row of neighbouring partitions of each topic it subscribed to."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in topics}
    for topic, count in sorted(counts.items()):
        members = sorted(member for member, subscribed in topics.items() if topic in subscribed)
        first = 0
        for index, member in enumerate(members):
            # The first members get the partitions that are left over.
            size = count // len(members) + (index < count % len(members))
            assigned[member] += [TopicPartition(topic, p) for p in range(first, first + size)]
            first += size
    return assigned


def assign_sticky(
    counts: Mapping[str, int],
    topics: Mapping[str, Sequence[str]],
    before: Mapping[str, Sequence[TopicPartition]],
) -> dict[str, list[TopicPartition]]:
    """Spread partitions evenly, and move as few as possible from where they were before."""
    partitions = [TopicPartition(t, p) for t, count in sorted(counts.items()) for p in range(count)]
    left = set(partitions)
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(topics)}
    for member, subscribed in sorted(topics.items()):
        retained = [p for p in before.get(member, ()) if p in left and p.topic in subscribed]
        assigned[member] += retained
        left.difference_update(retained)
    for partition in partitions:
        taker = _least(assigned, topics, partition) if partition in left else None
        if taker is not None:
            assigned[taker].append(partition)
    _even_out(assigned, topics)
    return {member: sorted(owned) for member, owned in assigned.items()}


def _even_out(
    assigned: dict[str, list[TopicPartition]], topics: Mapping[str, Sequence[str]]
) -> None:
    moved = True
    while moved:
        moved = False
        for owned in assigned.values():
            for partition in sorted(owned, reverse=True):
                taker = _least(assigned, topics, partition)
                if taker is not None and len(assigned[taker]) + 1 < len(owned):
                    owned.remove(partition)
                    assigned[taker].append(partition)
                    moved = True


def _least(
    assigned: Mapping[str, Sequence[TopicPartition]],
    topics: Mapping[str, Sequence[str]],
    partition: TopicPartition,
) -> str | None:
    """Return the subscribed member with the fewest partitions."""
    subscribers = (member for member in assigned if partition.topic in topics[member])
    return min(subscribers, key=lambda member: len(assigned[member]), default=None)
