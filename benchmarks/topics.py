"""Creates and fills the topics of a benchmark, and reads how far a group has come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.dataset import PARTITIONS, Raw

WAIT_SECONDS = 30.0
BATCH = 10_000
COORDINATOR_COMES_UP = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
"""The first question for a group makes the broker create the topic of the offsets."""


class LoadError(Exception):
    """Not every record arrived in its topic."""


class Topics:
    """The topics of one broker.

    Args:
        address: Where the broker listens.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._admin = self._new_admin()
        self._has_coordinator = False

    def create(self, *names: str) -> None:
        """Make topics whose records stay, however old their timestamps are."""
        wanted = [NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"}) for name in names]
        for future in self._admin.create_topics(wanted).values():
            future.result(WAIT_SECONDS)
        for name in names:
            self._await_leaders(name)

    def delete(self, prefix: str) -> None:
        """Delete every topic whose name begins with the prefix."""
        there = self._admin.list_topics(timeout=WAIT_SECONDS).topics
        unwanted = [name for name in there if name.startswith(prefix)]
        for future in self._admin.delete_topics(unwanted).values() if unwanted else ():
            future.result(WAIT_SECONDS)

    def load(self, topic: str, records: Iterable[Raw]) -> None:
        """Make a topic and write records, each to its partition.

        Raises:
            LoadError: The topic does not end where it should.
        """
        self.create(topic)
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "acks": "1",
                "linger.ms": 50,
                "batch.size": 1 << 20,
                "batch.num.messages": 20_000,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 1 << 19,
            }
        )
        produce, count = producer.produce, 0
        for key, value, partition, timestamp in records:
            count += 1
            while True:
                try:
                    produce(topic, value, key, partition, timestamp=timestamp)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush(WAIT_SECONDS)
        written = sum(self.end_offsets(topic))
        if written != count:
            msg = f"Topic {topic!r} has {written} of {count} records. Read the log of the broker."
            raise LoadError(msg)

    def end_offsets(self, topic: str) -> list[int]:
        """Return the end of each partition, as a `read_committed` consumer sees it."""
        latest = {
            TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)
        }
        found = self._admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
        return [future.result(WAIT_SECONDS).offset for future in found.values()]

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 2})

    def _await_leaders(self, topic: str) -> None:
        # A topic exists before its partitions have leaders that answer.
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self.end_offsets(topic)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                # The client would believe its first answer for the next 30 s.
                self._admin = self._new_admin()
            else:
                return

    def committed(self, group: str, topic: str) -> int:
        """Return how many records of a topic a group has committed, over all partitions."""
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        asked = [ConsumerGroupTopicPartitions(group, partitions)]
        try:
            if not self._has_coordinator:
                self._ask_coordinator(group, partitions)
            answer = self._admin.list_consumer_group_offsets(asked)[group].result(WAIT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() in COORDINATOR_COMES_UP:
                return 0
            raise
        return sum(max(0, found.offset) for found in answer.topic_partitions)

    def _ask_coordinator(self, group: str, partitions: list[TopicPartition]) -> None:
        # If the broker does not coordinate groups yet, the admin client of librdkafka crashes this
        # process (confluent-kafka-javascript#374). A consumer raises an error.
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": group,
                "isolation.level": "read_uncommitted",  # does not wait for open transactions
            }
        )
        try:
            consumer.committed(partitions, WAIT_SECONDS)
        finally:
            consumer.close()
        self._has_coordinator = True

    def read(self, topic: str) -> Iterator[Message]:
        """Yield every committed record of a topic whose writer has ended."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "benchmark-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        ended: set[int | None] = set()
        try:
            while len(ended) < PARTITIONS:
                for message in consumer.consume(BATCH, 1.0):
                    if message.error() is None:
                        yield message
                    else:
                        ended.add(message.partition())
        finally:
            consumer.close()
