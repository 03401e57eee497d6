"""The queues of a task, and which of their records is next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headrace.durations import MAX_MS
from headrace.engine.record_queue import RecordQueue
from headrace.records import ConsumerRecord
from headrace.topology.java_order import JavaPriorityQueue


class PartitionGroup:
    """Chooses the record with the smallest timestamp among the partitions of a task.

    Args:
        max_task_idle_ms: Kafka's ``max.task.idle.ms``: how long to wait for an input that is empty.
        kafka_ties: Whether records of one timestamp are taken in the order that Kafka's test driver
            takes them, which depends on when they came. Otherwise ties go by topic and partition,
            so that the order does not depend on how the input is cut into batches.
        deadlines: How long an earlier task of this partition would have waited; see `deadlines`.
    """

    def __init__(
        self,
        max_task_idle_ms: int,
        *,
        kafka_ties: bool = False,
        deadlines: dict[str, int] | None = None,
    ) -> None:
        self._idle_ms = max_task_idle_ms
        self._queues: dict[tuple[str, int], RecordQueue] = {}
        self._by_time = JavaPriorityQueue(_head_timestamp) if kafka_ties else None
        self.deadlines: dict[str, int] = dict(deadlines or {})
        """Until when to wait for an input that is empty, by topic and partition."""

    def __iter__(self) -> Iterator[RecordQueue]:
        return iter(self._queues.values())

    def get(self, topic: str, partition: int) -> RecordQueue | None:
        """Return the queue of a partition, if there is one."""
        return self._queues.get((topic, partition))

    def open(self, queue: RecordQueue) -> None:
        """Add a queue."""
        self._queues[queue.topic, queue.partition] = queue
        self._queues = dict(sorted(self._queues.items()))

    def add(self, queue: RecordQueue, records: Iterable[ConsumerRecord], *, has_more: bool) -> None:
        """Append records to a queue; see `Task.enqueue`."""
        was_empty = queue.is_empty()
        queue.add(records)
        queue.has_more = has_more
        if self._by_time is not None and was_empty and queue.head() is not None:
            self._by_time.add(queue)

    def take(self, now: int) -> tuple[RecordQueue, Any] | None:
        """Remove and return the next record and its queue; None if there is none that may go."""
        queue = self._next(now)
        if queue is None:
            return None
        head = queue.take()
        if self._by_time is not None:
            self._by_time.pop()
            if queue.head() is not None:
                self._by_time.add(queue)
        return queue, head

    def drainable(self) -> tuple[RecordQueue, int] | None:
        """Return the queue whose records are next, and up to which timestamp they are.

        None if that must be asked record by record, or if no record may go.
        """
        if self._by_time is not None or (self._idle_ms > 0 and len(self._queues) > 1):
            return None
        heads: list[tuple[int, int, RecordQueue]] = []
        for place, queue in enumerate(self):
            head = queue.head()
            if head is not None:
                heads.append((head.timestamp, place, queue))
            elif queue.has_more and self._idle_ms == 0 and len(self._queues) > 1:
                return None
        if not heads:
            return None
        first = min(heads)
        # Of one timestamp, the record of the earlier queue goes first.
        limits = (time - (place < first[1]) for time, place, _ in heads if place != first[1])
        return first[2], min(limits, default=MAX_MS)

    def _next(self, now: int) -> RecordQueue | None:
        best, best_timestamp = None, 0
        for queue in self:
            head = queue.head()
            if head is None:
                continue
            self.deadlines.pop(queue.id, None)
            if best is None or head.timestamp < best_timestamp:
                best, best_timestamp = queue, head.timestamp
        if best is None or not all(self._may_go_on(queue, now) for queue in self):
            return None
        return best if self._by_time is None else self._by_time.first()

    def _may_go_on(self, queue: RecordQueue, now: int) -> bool:
        """Return whether the other inputs can go on although this one may be empty."""
        if self._idle_ms < 0 or queue.is_decoded():
            return True
        if queue.has_more:
            self.deadlines.pop(queue.id, None)
            return False
        return self._idle_ms == 0 or now >= self.deadlines.setdefault(queue.id, now + self._idle_ms)


def _head_timestamp(queue: RecordQueue) -> int:
    head = queue.head()
    assert head is not None, "only queues with records are ordered"
    return head.timestamp
