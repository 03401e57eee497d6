"""Counts the tasks of each subtopology, and the partitions of each repartition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace.errors import TopologyError
from headrace.runtime.plan import ExecutionPlan, PlannedSubtopology


def task_counts(
    plan: ExecutionPlan,
    partitions_of: Callable[[str], int],
    matching: Callable[[PlannedSubtopology], Iterable[str]] = lambda _subtopology: (),
) -> tuple[dict[int, int], dict[str, int]]:
    """Return the tasks of each subtopology and the partitions of each repartition.

    As in Kafka, a repartition that asks for no number has as many partitions as the largest input
    of the subtopologies that write it. Inputs that are joined have equal numbers.

    Args:
        plan: The subtopologies and what they read.
        partitions_of: Returns how many partitions a topic has.
        matching: Returns the topics that a pattern of a subtopology matches.

    Raises:
        TopologyError: Topics that are joined have different numbers of partitions.
    """
    asked = plan.repartitions | plan.loops
    repartitions = {topic: count for topic, count in asked.items() if count is not None}
    external = {
        topic: partitions_of(topic)
        for subtopology in plan.subtopologies
        for topic in (*subtopology.topics, *matching(subtopology))
        if topic not in plan.loops
    }
    counts: dict[int, int] = {}
    for subtopology in sorted(plan.subtopologies, key=lambda subtopology: subtopology.stage):
        for topic in subtopology.repartitions:
            if plan.repartitions[topic] is None:
                # One at least: a pattern that writes it may match nothing yet.
                repartitions[topic] = max(1, *(counts[number] for number in plan.writers[topic]))
        read = [
            topic
            for topic in (*subtopology.topics, *matching(subtopology))
            if topic not in plan.loops
        ]
        loops = [topic for topic in subtopology.topics if topic in plan.loops]
        known = [external[topic] for topic in read]
        known += [repartitions[topic] for topic in subtopology.repartitions]
        for topic in loops:
            repartitions.setdefault(topic, max(known, default=1))
        for joined in plan.copartitions:
            if joined & {*subtopology.topics, *subtopology.repartitions}:
                _agree_on_counts(joined, plan, external, repartitions)
        inputs = [external[topic] for topic in read]
        inputs += [repartitions[topic] for topic in (*subtopology.repartitions, *loops)]
        counts[subtopology.id] = max(inputs, default=0)
    return counts, repartitions


def _agree_on_counts(
    joined: frozenset[str],
    plan: ExecutionPlan,
    external: Mapping[str, int],
    repartitions: dict[str, int],
) -> None:
    """Give joined repartitions one count: that of their topics, or the one the program asks for."""
    asked = plan.repartitions | plan.loops
    free = [topic for topic in joined if topic in repartitions and asked[topic] is None]
    fixed = {topic: external[topic] for topic in joined if topic in external}
    fixed |= {topic: repartitions[topic] for topic in joined if asked.get(topic)}
    largest = max((repartitions[topic] for topic in free), default=0)
    counts = fixed or dict.fromkeys(free, largest)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic!r} has {counts[topic]}" for topic in sorted(counts))
        msg = (
            f"Topics that are joined must have the same number of partitions, but {listed}. "
            "Create them with equal numbers, or `repartition` one of the streams."
        )
        raise TopologyError(msg)
    for topic in free:
        repartitions[topic] = next(iter(counts.values()))
