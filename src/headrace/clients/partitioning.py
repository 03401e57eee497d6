"""Chooses the partition of a record that a producer sends, where the key does not."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from secrets import randbelow
from typing import Any, TypeAlias, cast

from headrace.config.objects import object_from
from headrace.errors import ConfigError

PARTITIONER = "partitioner.class"
"""Kafka's name of the setting."""

Partitioner: TypeAlias = Callable[[str, Any, Any, int], int | None]
"""f(topic, key, value, partitions): the partition of a record, or None for Kafka's choice."""


class RoundRobinPartitioner:
    """Sends the records of each topic to its partitions in turn, whatever their keys."""

    def __init__(self) -> None:
        # `next` of a counter is one step: threads share a producer without a lock.
        self._numbers: dict[str, Iterator[int]] = defaultdict(count)

    def __call__(self, topic: str, key: Any, value: Any, partitions: int) -> int:
        """Return the partition after the one of the topic's last record."""
        return next(self._numbers[topic]) % partitions


def partitioner_from(given: object) -> Partitioner | None:
    """Return the partitioner that a setting means.

    Args:
        given: A function, a class of callables, ``"module:name"`` of one of them, Kafka's
            ``"RoundRobinPartitioner"`` with or without its package, or None.

    Raises:
        ConfigError: It is none of these.
    """
    if given is None:
        return None
    if isinstance(given, str) and given.rpartition(".")[2] == RoundRobinPartitioner.__name__:
        return RoundRobinPartitioner()
    try:
        partitioner = object_from(given, "partitioner")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not callable(partitioner):
        msg = (
            f"`partitioner` is {given!r}, which cannot be called. Use a function "
            'f(topic, key, value, partitions), "module:name" of one, or `RoundRobinPartitioner`.'
        )
        raise ConfigError(msg)
    return cast(Partitioner, partitioner)


class StickyPartitions:
    """Chooses partitions for records without a key, like Kafka's sticky partitioner before 3.3.

    Since KIP-794 Kafka's producer stays on a partition until it has sent ``batch.size`` bytes,
    whatever ``linger.ms`` is. So a producer of few records would write to one partition alone.

    The records of one batch go to one partition, and the next batch to another, chosen at random. A
    batch ends with ``batch.size`` bytes or after ``linger.ms``; if one of them is 0, each record is
    a batch.
    """

    def __init__(self, batch_bytes: int, linger_seconds: float) -> None:
        self._batch_bytes = batch_bytes
        self._linger_seconds = linger_seconds
        self._batches: dict[str, _Batch] = {}

    def next(self, topic: str, partitions: int, size: int) -> int:
        """Return the partition of the next record, which has ``size`` bytes."""
        now = time.monotonic()
        batch = self._batches.get(topic)
        if batch is None or batch.bytes_left <= 0 or now >= batch.deadline:
            if batch is None or partitions == 1:
                partition = randbelow(partitions)
            else:
                partition = (batch.partition + 1 + randbelow(partitions - 1)) % partitions
            batch = _Batch(partition, self._batch_bytes, now + self._linger_seconds)
            self._batches[topic] = batch
        batch.bytes_left -= size
        return batch.partition


@dataclass(slots=True)
class _Batch:
    partition: int
    bytes_left: int
    deadline: float
