"""Admission control: how many records the next batch may read, and when it may start."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from heapq import nlargest

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.errors import OffsetOutOfRangeError

FIRST_RECORDS = 20_000
FIRST_TABLE_RECORDS = 200_000
"""How many more records of tables the first batch may read: a join waits for its table."""
MAX_RECORDS = 1_000_000
MAX_BYTES = 256 << 20
MIN_RECORDS = 1_000
TARGET_SECONDS = 8.0
"""How long a batch may take while there are more records than it can read."""
_STEP = 8
_FEW_RECORDS = 250
"""So many records fit into memory, even if each has 1 MB, the default limit of a topic."""
_MANY_RECORDS = 5_000
_SAMPLES, _SAMPLES_OF_MANY = 3, 9
"""How many records of a partition are sampled; many, if they could exceed the memory by far."""
_SAMPLED_PARTITIONS = 16


class Admission:
    """Limits the records of a batch by the time and the bytes of the batches before.

    A planned batch cannot shrink, because Spark replays it as it was planned. So the limit grows in
    steps. The next records may be larger than those before, so their size is sampled: at three or
    nine offsets, from the first to the last that the batch would read of a partition. The bytes are
    those that a batch reads, or those that its tasks make of them, if these are more.

    PySpark puts all rows that a grouping key returns into one Arrow array, which holds 2 GB: eight
    times the limit of a whole batch. The first batch of a process reads an eighth of the limit, so
    its tasks may make 64 bytes of each byte that they read.

    ``tables`` are the topics that are read as tables.
    """

    def __init__(
        self,
        log: TopicLog,
        *,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        max_record_bytes: int = MAX_BYTES,
        tables: Collection[str] = (),
    ) -> None:
        self._log = log
        self._tables = frozenset(tables)
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._max_record_bytes = max_record_bytes
        self._batches = 0
        self._has_sampled = False
        self._bytes_per_record = 0.0
        self.limit = min(FIRST_RECORDS, max_records)
        """How many records the next batch may have."""

    def learn(self, records: int, seconds: float, size: int) -> None:
        """Adapt the limit to a finished batch; ``size`` is what it read or made, in bytes."""
        self._batches += 1
        if records:
            self._bytes_per_record = max(size / records, 0.5 * self._bytes_per_record)
        # The first batch starts everything. A batch far below the limit does not show its cost.
        if self._batches > 1 and records >= self.limit // 2:
            target = int(records / max(seconds, 0.001) * TARGET_SECONDS)
            self.limit = max(self.limit // _STEP, min(target, self.limit * _STEP))
        elif records >= self.limit // 2:
            self.limit *= _STEP
        self.limit = max(MIN_RECORDS, min(self.limit, self._max_records))
        self.limit = self._within_bytes(self.limit)

    def shares(
        self, begins: Mapping[TopicPartition, int], available: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return how many records of each partition the next batch reads, at least one of each.

        Args:
            begins: Where each partition is read from.
            available: How many records there are from there on.
        """
        shares = self._shares(available)
        records = sum(shares.values())
        if records == 0 or (records < _FEW_RECORDS and self._has_sampled):
            return shares
        self._has_sampled = True
        self._bytes_per_record = max(self._sample(begins, shares), self._bytes_per_record)
        self.limit = self._within_bytes(self.limit)
        return self._shares(available)

    def _within_bytes(self, records: int) -> int:
        if self._bytes_per_record < 1:  # many batches had no record in their ranges
            return records
        # Nothing shows yet how much the tasks make of a record.
        max_bytes = self._max_bytes if self._batches else self._max_bytes // _STEP
        return max(1, min(records, int(max_bytes / self._bytes_per_record)))

    def _shares(self, available: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self._batches:
            return share_evenly(available, self.limit)
        tables: dict[TopicPartition, int] = {}
        streams: dict[TopicPartition, int] = {}
        for partition, count in available.items():
            (tables if partition.topic in self._tables else streams)[partition] = count
        table_limit = self._within_bytes(min(FIRST_TABLE_RECORDS, self._max_records))
        return {**share_evenly(tables, table_limit), **share_evenly(streams, self.limit)}

    def _sample(
        self, begins: Mapping[TopicPartition, int], shares: Mapping[TopicPartition, int]
    ) -> float:
        """Return about how many bytes a record of a batch has."""
        largest = nlargest(_SAMPLED_PARTITIONS, shares, key=lambda partition: shares[partition])
        sizes: dict[TopicPartition, list[int]] = {partition: [] for partition in largest}
        samples = _SAMPLES if sum(shares.values()) < _MANY_RECORDS else _SAMPLES_OF_MANY
        for sample in range(samples):
            offsets = {
                partition: begins[partition] + (shares[partition] - 1) * sample // (samples - 1)
                for partition in largest
            }
            # A task that reads deleted records raises the error.
            with suppress(OffsetOutOfRangeError):
                for partition, columns in self._log.read_ranges(
                    [(partition, offset, offset + 1) for partition, offset in offsets.items()]
                ):
                    read = columns.without_oversized(self._max_record_bytes)
                    sizes[partition].append(read.size())
        means = {partition: sum(seen) / len(seen) for partition, seen in sizes.items() if seen}
        sampled = sum(shares[partition] for partition in means)
        weighted = sum(shares[partition] * mean for partition, mean in means.items())
        return weighted / max(1, sampled)


def share_evenly(available: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Share a limit among partitions that have records; each gets at least one."""
    shares: dict[TopicPartition, int] = {}
    remaining = limit
    ascending = sorted((count, partition) for partition, count in available.items() if count > 0)
    for index, (count, partition) in enumerate(ascending):
        share = max(1, min(count, remaining // (len(ascending) - index)))
        shares[partition] = share
        remaining = max(0, remaining - share)
    return shares


class TriggerInterval:
    """Keeps the times at which batches may begin; the first one is now.

    Spark could keep them, but then it asks the planner for nothing in between: the planner would
    commit a batch an interval after its end.

    Args:
        trigger: The setting; only a length of time delays a batch.
    """

    def __init__(self, trigger: str | timedelta) -> None:
        self._seconds = trigger.total_seconds() if isinstance(trigger, timedelta) else 0.0
        self._next = time.monotonic()

    def remaining(self) -> float:
        """Return how many seconds it is until a batch may begin; 0 if one may begin now."""
        return max(0.0, self._next - time.monotonic())

    def is_over(self) -> bool:
        """Return whether a batch may begin; if so, the next interval begins."""
        if self.remaining():
            return False
        if self._seconds:
            # At full minutes and the like, as Spark does; a clock that is set changes one wait.
            self._next = time.monotonic() + self._seconds - time.time() % self._seconds
        return True

    def skip(self) -> None:
        """Allow the next batch at once, because the last one left records behind."""
        self._next = time.monotonic()
