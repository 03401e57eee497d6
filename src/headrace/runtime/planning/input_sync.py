"""Input synchronization: no input of a task runs far ahead of its other inputs.

A task with several inputs buffers the records that are newer than what it has read of its other
inputs. The planner reads no more of an input of which a task has buffered
``buffered.records.per.partition`` records or more. It commits the offsets of processed records
only, not of buffered ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.brokers.log import TopicPartition
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.plan import ExecutionPlan
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

    def limit_inputs_ahead(self, available: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return how many records a batch may read: none of inputs that are at the bound.

        A task buffers records because another input is empty. If that input has no more records,
        the clock releases the buffer after the idle time, and the batch reads nothing for it. If
        its topic has more, the batch reads every partition that feeds the input, even one that also
        feeds an input at the bound. So the task makes progress in both cases.
        """
        at_bound: set[TopicPartition] = set()
        needed: set[TopicPartition] = set()
        for report in self._reports:
            for topics, partitions in ((report.ahead, at_bound), (report.starved, needed)):
                for topic in topics:
                    partitions |= self._feeding(report.task, topic, available)
        return available | dict.fromkeys(at_bound - needed, 0)

    def _feeding(
        self, task: str, topic: str, available: Iterable[TopicPartition]
    ) -> set[TopicPartition]:
        """Return the partitions that bring records to an input of a task."""
        subtopology, _, partition = task.partition("_")
        if topic not in self._plan.subtopology(int(subtopology)).repartitions:
            return {TopicPartition(topic, int(partition))} & set(available)
        writers = _writers_of(self._plan, topic)
        return {
            name
            for name in available
            if (reader := self._plan.reader_of(name.topic)) is not None and reader.id in writers
        }

    def processed_offsets(self, done: BatchBoundary) -> dict[TopicPartition, int | None]:
        """Return up to where each partition is processed; None where that is not known.

        Each is read up to the boundary.
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


def _writers_of(plan: ExecutionPlan, repartition: str) -> set[int]:
    """Return the subtopologies whose records come through a repartition, however far upstream."""
    writers = set(plan.writers[repartition])
    for number in plan.writers[repartition]:
        writers |= plan.upstream_ids(plan.subtopology(number))
    return writers
