"""ConsumerRecords: the result of one poll."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from headrace.brokers import TopicPartition
from headrace.records import ConsumerRecord


class ConsumerRecords(Sequence[ConsumerRecord]):
    """Records of one or more partitions, in the order of their offsets within each."""

    def __init__(self, records: Iterable[ConsumerRecord] = ()) -> None:
        self._records = tuple(records)
        self._by_partition: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in self._records:
            partition = TopicPartition(record.topic, record.partition)
            self._by_partition.setdefault(partition, []).append(record)

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> ConsumerRecords: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | ConsumerRecords:
        """Return one record, or some of them."""
        if isinstance(index, slice):
            return ConsumerRecords(self._records[index])
        return self._records[index]

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        counts = {
            f"{name.topic}-{name.partition}": len(records)
            for name, records in self._by_partition.items()
        }
        return f"ConsumerRecords({counts})"

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that have records here."""
        return list(self._by_partition)

    def records(self, partition: TopicPartition) -> list[ConsumerRecord]:
        """Return the records of one partition."""
        return list(self._by_partition.get(partition, ()))
