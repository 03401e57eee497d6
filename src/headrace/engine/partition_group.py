"""The queues of a task, and which of their records is next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from headrace.durations import MAX_MS
from headrace.engine.record_queue import RecordQueue
from headrace.records import ConsumerRecord
from headrace.topology.java_order import JavaPriorityQueue


class Ties(Enum):
    """The order of the records that have one timestamp in several inputs."""

    BY_TOPIC = "by topic"
    """By topic and partition: the order does not depend on how the input is cut into batches."""
    BY_ARRIVAL = "by arrival"
    """As in Kafka's test driver: the order depends on when the records came."""


class PartitionGroup:
    """Chooses the record with the smallest timestamp among the partitions of a task.

    Args:
        max_task_idle_ms: Kafka's ``max.task.idle.ms``: how long to wait for an input that is empty.
        ties: Which of several records with one timestamp is next.
        deadlines: How long an earlier task of this partition would have waited; see `deadlines`.
    """

    def __init__(
        self,
        max_task_idle_ms: int,
        *,
        ties: Ties = Ties.BY_TOPIC,
        deadlines: dict[str, int] | None = None,
    ) -> None:
        self._idle_ms = max_task_idle_ms
        self._queues: dict[tuple[str, int], RecordQueue] = {}
        self._by_time = JavaPriorityQueue(_head_timestamp) if ties is Ties.BY_ARRIVAL else None
        self.deadlines: dict[str, int] = dict(deadlines or {})
        """Until when to wait for an input that is empty, by topic and partition."""

    def __iter__(self) -> Iterator[RecordQueue]:
        return iter(self._queues.values())

    def get(self, topic: str, partition: int) -> RecordQueue | None:
        return self._queues.get((topic, partition))

    def open(self, queue: RecordQueue) -> None:
        self._queues[queue.topic, queue.partition] = queue
        self._queues = dict(sorted(self._queues.items()))

    def place_of(self, count: int) -> int:
        """Return where to take so many of the records in memory: in each batch somewhere else."""
        heads = [head for queue in self if (head := queue.head()) is not None]
        records = len(heads) + sum(len(queue.waiting) for queue in self)
        return sum(head.raw.offset for head in heads) % max(1, records - count + 1)

    def add(self, queue: RecordQueue, records: Iterable[ConsumerRecord], *, has_more: bool) -> None:
        """Append records to a queue; see `Task.enqueue`."""
        was_empty = queue.is_empty()
        queue.add(records)
        queue.has_more = has_more
        if self._by_time is not None and was_empty and queue.head() is not None:
            self._by_time.add(queue)

    def next_run(self, now: int) -> tuple[RecordQueue, int, int] | None:
        """Return the queue whose records are next, up to which timestamp, and how many at most.

        None if no record may be processed. The caller ends the run with `end_run`.
        """
        heads = self._heads()
        while heads or any(queue.has_unread() for queue in self):
            if not all(self._may_pass(queue, now) for queue in self):
                return None
            unread = [queue for queue in self if queue.has_unread()]
            if not unread:
                break
            # Only now: a backlog is not read while the task waits for another input.
            for queue in unread:
                queue.read_backlog()
            heads = self._heads()
        if not heads:
            return None
        if self._by_time is not None and len(heads) > 1:
            queue = self._by_time.first()
            return queue, _head_timestamp(queue), 1
        _, first, queue = min(heads)
        # Of one timestamp, the record of the earlier queue goes first.
        limits = (time - (rank < first) for time, rank, _ in heads if rank != first)
        return queue, min(limits, default=MAX_MS), MAX_MS

    def _heads(self) -> list[tuple[int, int, RecordQueue]]:
        """Return the timestamp, the rank and the queue of each first record in memory."""
        heads: list[tuple[int, int, RecordQueue]] = []
        for rank, queue in enumerate(self):
            head = queue.head()
            if head is not None:
                heads.append((head.timestamp, rank, queue))
            if head is not None or queue.has_unread():
                self.deadlines.pop(queue.id, None)
        return heads

    def end_run(self, queue: RecordQueue) -> None:
        """Order a queue by the record that is its first now."""
        if self._by_time is not None:
            self._by_time.pop()
            if queue.head() is not None:
                self._by_time.add(queue)

    def _may_pass(self, queue: RecordQueue, now: int) -> bool:
        """Return whether the other inputs may be processed although this one may be empty."""
        if self._idle_ms < 0 or queue.is_decoded() or queue.has_unread():
            return True
        if queue.has_more:
            self.deadlines.pop(queue.id, None)
            return False
        if self._idle_ms == 0:
            return True
        # A deadline of a clock that was ahead must not make the task wait longer.
        deadline = min(self.deadlines.get(queue.id, MAX_MS), now + self._idle_ms)
        self.deadlines[queue.id] = deadline
        return now >= deadline


def _head_timestamp(queue: RecordQueue) -> int:
    head = queue.head()
    assert head is not None, "only queues with records are ordered"
    return head.timestamp
