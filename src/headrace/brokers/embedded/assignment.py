"""Which member of a group reads which partition: Kafka's range and sticky assignors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.brokers.log import TopicPartition


def assign_ranges(
    counts: Mapping[str, int], topics: Mapping[str, Sequence[str]]
) -> dict[str, list[TopicPartition]]:
    """Give each member a row of neighbouring partitions of each topic.

    Args:
        counts: The partitions of each topic.
        topics: What each member subscribed to.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in topics}
    for topic, count in sorted(counts.items()):
        members = sorted(member for member, wanted in topics.items() if topic in wanted)
        first = 0
        for index, member in enumerate(members):
            # The first members get the ones that are left over.
            size = count // len(members) + (index < count % len(members))
            assigned[member] += [TopicPartition(topic, p) for p in range(first, first + size)]
            first += size
    return assigned


def assign_sticky(
    counts: Mapping[str, int],
    topics: Mapping[str, Sequence[str]],
    before: Mapping[str, Sequence[TopicPartition]],
) -> dict[str, list[TopicPartition]]:
    """Spread partitions evenly, and move as few as that takes.

    Args:
        counts: The partitions of each topic.
        topics: What each member subscribed to.
        before: What each member had.
    """
    partitions = [TopicPartition(t, p) for t, count in sorted(counts.items()) for p in range(count)]
    left = set(partitions)
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(topics)}
    for member, wanted in sorted(topics.items()):
        kept = [p for p in before.get(member, ()) if p in left and p.topic in wanted]
        assigned[member] += kept
        left.difference_update(kept)
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
    """Return the member with the fewest partitions of those that want this one."""
    wanting = (member for member in assigned if partition.topic in topics[member])
    return min(wanting, key=lambda member: len(assigned[member]), default=None)
