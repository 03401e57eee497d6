"""The consumers of the document: a thread for each, in one group, committing for themselves."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace import StreamsConfig, WakeupError
from headrace.clients import (
    KafkaConsumer,
    OffsetAndMetadata,
    TopicPartition,
)

GROUP = "simple-logs-processing"
log = logging.getLogger("SimpleConsumer")

SECONDS = 120
"""How long to wait for a group, on a busy machine."""


@dataclass(frozen=True)
class Printed:
    """A record that a consumer has printed."""

    consumer: int
    partition: int
    offset: int


class Sheet:
    """What consumers have printed."""

    def __init__(self) -> None:
        self.lines: list[Printed] = []
        self._changed = threading.Condition()

    def add(self, line: Printed) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def await_that(self, is_enough: Callable[[list[Printed]], bool]) -> list[Printed]:
        """Return the lines once they are enough."""
        with self._changed:
            if not self._changed.wait_for(lambda: is_enough(self.lines), SECONDS):
                msg = f"The consumers have printed {len(self.lines)} records, and no more."
                raise TimeoutError(msg)
            return list(self.lines)


class CrashError(Exception):
    """A consumer ends before it has committed what it printed."""


class Crash:
    """Ends the first consumer that prints records after `arm`, before its commit."""

    def __init__(self) -> None:
        self._armed = threading.Semaphore(0)
        self._crashed: queue.SimpleQueue[SimpleConsumer] = queue.SimpleQueue()

    def arm(self) -> None:
        self._armed.release()

    def hits(self, consumer: SimpleConsumer) -> bool:
        """Return whether a consumer that has just printed records is the one to end."""
        hits = self._armed.acquire(blocking=False)
        if hits:
            self._crashed.put(consumer)
        return hits

    def crashed(self) -> SimpleConsumer:
        """Return the consumer that it ended, once there is one."""
        return self._crashed.get(timeout=SECONDS)


class SimpleConsumer(threading.Thread):
    """Reads topics until `shutdown`, and commits each batch of a partition after it."""

    def __init__(
        self,
        id: int,  # noqa: A002  # the document's name
        topics: list[str],
        config: StreamsConfig,
        on_printed: Callable[[Printed], None] = lambda _: None,
        *,
        start_offset: int | None = None,
        crash: Crash | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(name=f"consumer-{id}", daemon=True)
        self.id, self.topics, self.on_printed = id, topics, on_printed
        self.start_offset, self.crash = start_offset, crash
        properties = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "max_poll_records": 5,
        }
        merged: Any = {**properties, **settings}
        self.consumer = KafkaConsumer(config, key=str, value=str, **merged)

    def run(self) -> None:
        try:
            self.consumer.subscribe(self.topics, on_assigned=self.assigned, on_revoked=self.revoked)
            log.info("Consumer %s subscribed ...", self.id)
            while True:
                log.info("Consumer %s polling ...", self.id)
                self.print_and_commit()
        except WakeupError:
            pass  # ignore for shutdown
        except CrashError:
            log.info("Consumer %s crashed", self.id)
        finally:
            self.consumer.close()

    def print_and_commit(self) -> None:
        records = self.consumer.poll("7d")
        log.info("Received %s records", len(records))
        for partition in records.partitions():
            batch = records.records(partition)
            for record in batch:
                log.info(
                    "ConsumerId:%s-Topic:%s => Partition=%s, Offset=%s, EventTime:[%s] Val=%s",
                    *(self.id, record.topic, record.partition, record.offset),
                    *(record.timestamp, record.value),
                )
                self.on_printed(Printed(self.id, record.partition, record.offset))
            if self.crash is not None and self.crash.hits(self):
                raise CrashError
            last = batch[-1].offset
            self.consumer.commit({partition: OffsetAndMetadata(last + 1)})

    def assigned(self, consumer: KafkaConsumer[Any, Any], partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            log.info("*** Partitions assigned %s-%s", *partition)
            if self.start_offset is not None:
                consumer.seek(partition, self.start_offset)

    def revoked(self, _: KafkaConsumer[Any, Any], partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            log.info("*** Partitions revoked %s-%s", *partition)

    def shutdown(self) -> None:
        """Let a blocked poll end, and wait for the thread."""
        self.consumer.wakeup()
        self.join()


def reset_tool(config: StreamsConfig, topic: str, offset: int) -> dict[TopicPartition, int]:
    """Let the group continue at an offset of each partition; it must have no members.

    The document's tool is a consumer with the group's own id: it seeks, and commits.
    """
    with KafkaConsumer(config, key=str, value=str, group_id=GROUP) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, offset)
        consumer.commit({partition: consumer.position(partition) for partition in partitions})
        return {partition: consumer.position(partition) for partition in partitions}
