"""Input synchronization: no input of a task runs far ahead of its other inputs.

A task with several inputs buffers the records that are newer than what it has read of its other
inputs. The planner reads no more of an input of which a task has buffered many, until the others
have caught up. It commits the offsets of processed records only, not of buffered ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.brokers.log import TopicPartition
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.plan import ExecutionPlan, PlannedSubtopology
from headrace.runtime.planning.input_topics import InputTopics


class InputSync:
    """Follows which records the tasks have buffered."""

    def __init__(self, plan: ExecutionPlan, layout: CheckpointLayout, topics: InputTopics) -> None:
        self._plan = plan
        self._layout = layout
        self._topics = topics
        self._reports: list[TaskReport] = []
        """The reports of the last batch."""
        self._buffered_from: dict[str, dict[str, int]] = {}
        """The first buffered offset of each topic, by the tasks that have run since the start."""

    def learn(self, reports: list[TaskReport]) -> None:
        """Use the reports of a batch for the next one."""
        self._reports = reports
        for report in reports:
            if report.waiting_from is not None:
                self._buffered_from[report.task] = report.waiting_from

    def limit_inputs_ahead(
        self, available: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return how many records a batch may read, none of inputs that others must catch up to."""
        plan, limited = self._plan, dict(available)
        inputs_ahead = [
            (plan.subtopology(int(report.task.partition("_")[0])), report, topic)
            for report in self._reports
            for topic in report.ahead
        ]
        with_topic_ahead = {
            subtopology.id
            for subtopology, _, topic in inputs_ahead
            if topic not in subtopology.repartitions
        }
        for subtopology, report, topic in inputs_ahead:
            # All partitions of its sources feed a repartition: another task may wait for just that.
            if topic in subtopology.repartitions and subtopology.id in with_topic_ahead:
                continue
            partition = int(report.task.rpartition("_")[2])
            ahead = _feeding(plan, subtopology, topic, partition, limited)
            inputs = {name.topic for name in limited if plan.reader_of(name.topic) is subtopology}
            others = {
                name
                for other in inputs.union(subtopology.repartitions) - {topic}
                for name in _feeding(plan, subtopology, other, partition, limited)
            }
            if any(limited[name] for name in others - ahead):
                limited |= dict.fromkeys(ahead, 0)
        return limited if any(limited.values()) else dict(available)

    def processed_offsets(self, done: BatchBoundary) -> dict[TopicPartition, int | None]:
        """Return up to where each partition is processed; None where that is not known.

        Args:
            done: Up to where it is read.
        """
        processed: dict[TopicPartition, int | None] = {}
        unknown = self._subtopologies_with_buffers()
        for topic, offsets in done.offsets.items():
            reader = self._plan.reader_of(topic)
            for partition, offset in enumerate(offsets[: self._topics.counts.get(topic, 0)]):
                buffered_from: dict[str, int] | None = {}
                if reader is not None and reader.has_several_inputs:
                    # A task that has not run since the start may have buffered records.
                    buffered_from = self._buffered_from.get(f"{reader.id}_{partition}")
                if buffered_from is None or (reader is not None and reader.id in unknown):
                    processed[TopicPartition(topic, partition)] = None
                else:
                    first = min(offset, buffered_from.get(topic, offset))
                    processed[TopicPartition(topic, partition)] = first
        return processed

    def _subtopologies_with_buffers(self) -> set[int]:
        """Return the subtopologies that feed a repartition of which a task may buffer records.

        A record that comes through a repartition has no offset of its source.
        """
        with_buffers: set[int] = set()
        for subtopology in self._plan.subtopologies:
            if not subtopology.repartitions or not subtopology.has_several_inputs:
                continue
            for partition in range(self._layout.count_of(subtopology.id)):
                buffered_from = self._buffered_from.get(f"{subtopology.id}_{partition}")
                for topic in subtopology.repartitions:
                    if buffered_from is None or topic in buffered_from:
                        with_buffers |= _writers_of(self._plan, topic)
        return with_buffers


def _feeding(
    plan: ExecutionPlan,
    subtopology: PlannedSubtopology,
    topic: str,
    partition: int,
    available: Iterable[TopicPartition],
) -> set[TopicPartition]:
    """Return the partitions that bring records to an input of a task."""
    if topic not in subtopology.repartitions:
        return {TopicPartition(topic, partition)} & set(available)
    writers = _writers_of(plan, topic)
    return {
        name
        for name in available
        if (reader := plan.reader_of(name.topic)) is not None and reader.id in writers
    }


def _writers_of(plan: ExecutionPlan, repartition: str) -> set[int]:
    """Return the subtopologies whose records come through a repartition, however far upstream."""
    writers = set(plan.writers[repartition])
    for number in plan.writers[repartition]:
        writers |= plan.upstream_ids(plan.subtopology(number))
    return writers
