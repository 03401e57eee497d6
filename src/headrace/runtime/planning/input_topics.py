"""Which topics an application reads now, and where it starts reading them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.config import StreamsConfig
from headrace.config.values import offset_reset_from_text
from headrace.errors import NoOffsetForPartitionError, UnknownTopicError
from headrace.runtime.plan import ExecutionPlan, PlannedSubtopology
from headrace.topology.nodes import AutoOffsetReset, SourceNode


def matching_topics(plan: ExecutionPlan, log: TopicLog) -> dict[str, PlannedSubtopology]:
    """Return the topics that patterns match, each with the subtopology that reads it.

    Raises:
        TopologyError: The patterns of two sources match one topic.
    """
    if not any(subtopology.has_pattern for subtopology in plan.subtopologies):
        return {}
    taken = {topic for subtopology in plan.subtopologies for topic in subtopology.topics} | set(
        plan.global_topics
    )
    # Kafka never hands an application's own internal topics to a pattern of it.
    own = f"{plan.application_id}-"
    return {
        topic: subtopology
        for topic in log.list_topics()
        if topic not in taken
        and not topic.startswith(own)
        and (subtopology := plan.reader_of(topic)) is not None
    }


class Subscriptions:
    """The topics of an application on its log.

    Args:
        plan: What runs.
        log: Where topics are.
    """

    def __init__(self, plan: ExecutionPlan, log: TopicLog) -> None:
        self._plan = plan
        self._log = log
        self.readers: dict[str, PlannedSubtopology] = {}
        """The subtopology that reads each topic; global ones are not among them."""
        self.counts: dict[str, int] = {}
        """How many partitions each topic has, global ones included."""
        self.refresh()

    def refresh(self) -> None:
        """Look which topics and partitions there are.

        Raises:
            TopologyError: The patterns of two sources match one topic.
            UnknownTopicError: A topic that the program names is not there.
        """
        readers = {
            topic: subtopology
            for subtopology in self._plan.subtopologies
            for topic in subtopology.topics
        }
        readers |= matching_topics(self._plan, self._log)
        counts = {topic: self._log.partition_count(topic) for topic in readers}
        for topic in self._plan.global_topics:
            counts[topic] = self._log.partition_count(topic)
        self.readers, self.counts = readers, counts

    def partitions(self) -> Iterator[TopicPartition]:
        """Yield every partition that is read."""
        for topic, count in self.counts.items():
            for partition in range(count):
                yield TopicPartition(topic, partition)


def first_offsets(
    plan: ExecutionPlan, config: StreamsConfig, log: TopicLog, subscriptions: Subscriptions
) -> dict[str, list[int]]:
    """Return where an application without a checkpoint starts.

    What its group committed counts first: `headrace reset` puts it there. Then each source's
    ``auto_offset_reset``. Global tables are read from their beginning.

    Raises:
        NoOffsetForPartitionError: Nothing is committed, and a source may not choose.
    """
    partitions = list(subscriptions.partitions())
    group = plan.application_id
    beginnings = log.beginning_offsets(partitions)
    ends = log.end_offsets(partitions)
    committed = log.committed_offsets(group)
    offsets: dict[str, list[int]] = {
        topic: [0] * count for topic, count in subscriptions.counts.items()
    }
    for name in partitions:
        topic, partition = name
        subtopology = subscriptions.readers.get(topic)
        if subtopology is None:
            offset = beginnings[name]
        elif topic in plan.loops:
            offset = ends[name]  # what an earlier life of the application wrote is of no use
        elif name in committed:
            offset = min(max(committed[name].offset, beginnings[name]), ends[name])
        else:
            chosen = _chosen(_reset_of(subtopology, topic, config), name, group, log)
            offset = ends[name] if chosen is None else max(chosen, beginnings[name])
        offsets[topic][partition] = offset
    return offsets


def check_resets(
    plan: ExecutionPlan,
    config: StreamsConfig,
    log: TopicLog,
    committed: Collection[TopicPartition],
) -> None:
    """Refuse an application without a checkpoint that may not choose where it starts.

    Raises:
        NoOffsetForPartitionError: Nothing is committed, and a source may not choose.
    """
    matched = matching_topics(plan, log)
    for subtopology in plan.subtopologies:
        by_pattern = {topic for topic, reader in matched.items() if reader is subtopology}
        topics = by_pattern.union(subtopology.topics) - plan.loops.keys()
        for topic in sorted(topics):
            if _reset_of(subtopology, topic, config) != "none":
                continue
            for partition in range(log.partition_count(topic)):
                if TopicPartition(topic, partition) not in committed:
                    raise NoOffsetForPartitionError(topic, partition, group=plan.application_id)


def _reset_of(
    subtopology: PlannedSubtopology, topic: str, config: StreamsConfig
) -> AutoOffsetReset:
    """Return what a source says, or else the application."""
    own = _source_of(subtopology, topic).auto_offset_reset
    told = config.client_settings("main.consumer").get("auto.offset.reset", "earliest")
    return offset_reset_from_text(told) if own is None else own


def _source_of(subtopology: PlannedSubtopology, topic: str) -> SourceNode:
    for source in subtopology.sources:
        if topic in source.topics or (source.pattern and source.pattern.fullmatch(topic)):
            return source
    raise UnknownTopicError(topic)


def _chosen(reset: AutoOffsetReset, name: TopicPartition, group: str, log: TopicLog) -> int | None:
    """Return where a source starts; None at the end."""
    if reset == "earliest":
        return 0
    if reset == "latest":
        return None
    if isinstance(reset, int):
        since = time.time_ns() // 1_000_000 - reset
        found = log.offsets_for_times({name: since})[name]
        return None if found is None else found.offset
    raise NoOffsetForPartitionError(*name, group=group)
