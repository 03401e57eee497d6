"""A Python data source over the Kafka client, row by row, at least once.

In a module of its own: Spark's workers import it by name, while classes of a program would be
sent by value together with the client's types, which cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

PARTITIONS = 4
RECORDS_PER_BATCH = 10_000


class Range(InputPartition):
    def __init__(self, partition: int, start: int, end: int) -> None:
        super().__init__(partition)
        self.partition, self.start, self.end = partition, start, end


class OrderReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.topic = options["source"]
        self.settings = {
            "bootstrap.servers": options["address"],
            "group.id": options["group"],
            "enable.auto.commit": False,
        }
        self.driver: Consumer | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {str(partition): 0 for partition in range(PARTITIONS)}

    def latestOffset(self, start: Any = None, _limit: Any = None) -> dict[str, int]:  # noqa: N802
        if self.driver is None:
            self.driver = Consumer(self.settings)
        end = {}
        for partition, begin in start.items():
            topic_partition = TopicPartition(self.topic, int(partition))
            high = self.driver.get_watermark_offsets(topic_partition, cached=False)[1]
            end[partition] = min(high, begin + RECORDS_PER_BATCH // PARTITIONS)
        return end

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return [Range(int(each), start[each], end[each]) for each in end if end[each] > start[each]]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, bytes]]:
        assert isinstance(partition, Range)
        consumer = Consumer(self.settings)
        consumer.assign([TopicPartition(self.topic, partition.partition, partition.start)])
        left = partition.end - partition.start
        while left > 0:
            for message in consumer.consume(min(left, 10_000), 1.0):
                key, value = message.key(), message.value()
                if message.error() is None and isinstance(key, bytes) and value is not None:
                    left -= 1
                    yield key.decode(), value
        consumer.close()


class TotalsWriter(DataSourceStreamWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self.topic, self.address = options["output"], options["address"]

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        producer = Producer({"bootstrap.servers": self.address, "partitioner": "murmur2_random"})
        for key, orders, amount in iterator:
            value = msgspec.json.encode({"orders": orders, "amount": amount})
            producer.produce(self.topic, value, key.encode())
            producer.poll(0)
        producer.flush()
        return WriterCommitMessage()


class PlainKafka(DataSource):
    @classmethod
    def name(cls) -> str:
        return "plain-kafka"

    def schema(self) -> str:
        return "key string, value binary"

    def streamReader(self, schema: Any) -> OrderReader:  # noqa: N802
        return OrderReader(dict(self.options))

    def streamWriter(self, schema: Any, overwrite: Any) -> TotalsWriter:  # noqa: N802
        return TotalsWriter(dict(self.options))
