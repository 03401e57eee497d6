"""Finds the topics that an application reads now, and the offsets at which it starts."""

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
    named = {topic for subtopology in plan.subtopologies for topic in subtopology.topics} | set(
        plan.global_topics
    )
    # A pattern never matches the application's own internal topics, as in Kafka.
    internal_prefix = f"{plan.application_id}-"
    return {
        topic: subtopology
        for topic in log.list_topics()
        if topic not in named
        and not topic.startswith(internal_prefix)
        and (subtopology := plan.reader_of(topic)) is not None
    }


class InputTopics:
    """The topics that an application reads, and their partitions."""

    def __init__(self, plan: ExecutionPlan, log: TopicLog) -> None:
        self._plan = plan
        self._log = log
        self.readers: dict[str, PlannedSubtopology] = {}
        """The subtopology that reads each topic; global ones are not among them."""
        self.counts: dict[str, int] = {}
        """How many partitions each topic has, global ones included."""
        self.refresh()

    def refresh(self) -> None:
        """Look up topics and partitions.

        Raises:
            TopologyError: The patterns of two sources match one topic.
            UnknownTopicError: A topic that the program names does not exist.
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
    plan: ExecutionPlan, config: StreamsConfig, log: TopicLog, topics: InputTopics
) -> dict[str, list[int]]:
    """Return where an application without a checkpoint starts.

    Offsets that its group has committed win: `headrace reset` commits some. Then the
    ``auto_offset_reset`` of the source decides. Global tables are read from their log start offset.

    Raises:
        NoOffsetForPartitionError: Nothing is committed, and ``auto_offset_reset`` is "none".
    """
    partitions = list(topics.partitions())
    group = plan.application_id
    log_starts = log.beginning_offsets(partitions)
    ends = log.end_offsets(partitions)
    committed = log.committed_offsets(group)
    offsets: dict[str, list[int]] = {topic: [0] * count for topic, count in topics.counts.items()}
    for name in partitions:
        topic, partition = name
        subtopology = topics.readers.get(topic)
        if subtopology is None:
            offset = log_starts[name]
        elif topic in plan.loops:
            offset = ends[name]  # records from before a reset are of no use
        elif name in committed:
            offset = min(max(committed[name].offset, log_starts[name]), ends[name])
        else:
            chosen = _offset_after_reset(_reset_of(subtopology, topic, config), name, group, log)
            offset = ends[name] if chosen is None else max(chosen, log_starts[name])
        offsets[topic][partition] = offset
    return offsets


def check_resets(
    plan: ExecutionPlan,
    config: StreamsConfig,
    log: TopicLog,
    committed: Collection[TopicPartition],
) -> None:
    """Check that an application without a checkpoint has an offset to start at.

    Raises:
        NoOffsetForPartitionError: Nothing is committed, and ``auto_offset_reset`` is "none".
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
    """Return the reset policy of a source; the application's if the source has none."""
    of_source = _source_of(subtopology, topic).auto_offset_reset
    default = config.client_settings("main.consumer").get("auto.offset.reset", "earliest")
    return offset_reset_from_text(default) if of_source is None else of_source


def _source_of(subtopology: PlannedSubtopology, topic: str) -> SourceNode:
    for source in subtopology.sources:
        if topic in source.topics or (source.pattern and source.pattern.fullmatch(topic)):
            return source
    raise UnknownTopicError(topic)


def _offset_after_reset(
    reset: AutoOffsetReset, name: TopicPartition, group: str, log: TopicLog
) -> int | None:
    """Return the offset where a source starts; None for the end."""
    if reset == "earliest":
        return 0
    if reset == "latest":
        return None
    if isinstance(reset, int):
        since = time.time_ns() // 1_000_000 - reset
        first = log.offsets_for_times({name: since})[name]
        return None if first is None else first.offset
    raise NoOffsetForPartitionError(*name, group=group)
