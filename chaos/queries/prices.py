"""Versions of prices that come out of order, and what the store of them must have."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from chaos.queries.program import PARTITIONS, PRICES, RATES, rate_of
from headrace.brokers.log import RawRecord, TopicLog
from headrace.serdes.partitioner import partition_for_key

_DAY_MS = 86_400_000
_MOST_LATE_MS = 20_000
_STEP_MS = 5
_DELETED = 0.1
"""The share of versions that delete."""


class _Latest(NamedTuple):
    """The latest version of a key, behind an offset."""

    offset: int
    timestamp: int
    price: int | None


class Prices:
    """All prices that were written, many of them later than newer ones of their key.

    Args:
        keys: The keys.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._chance = Random("prices")  # repeatable
        # Kafka compacts by the timestamps: these are old enough.
        self._clock = time.time_ns() // 1_000_000 - 3 * _DAY_MS
        self._count = 0
        self._latest: defaultdict[str, list[_Latest]] = defaultdict(list)
        self._held = threading.Lock()

    @property
    def count(self) -> int:
        """Return how many were written."""
        return self._count

    def write(self, log: TopicLog, count: int) -> None:
        """Write some prices. They are noted before: readers compare at once."""
        records: list[RawRecord] = []
        with self._held:
            for _ in range(count):
                self._clock += _STEP_MS
                key = self._chance.choice(self._keys)
                late_ms = self._chance.choice([0, 0, self._chance.randrange(_MOST_LATE_MS)])
                is_deleted = self._chance.random() < _DELETED
                price = None if is_deleted else self._chance.randint(1, 1_000)
                self._note(key, self._clock - late_ms, price)
                value = None if price is None else price.to_bytes(8)
                records.append((PRICES, 0, self._clock - late_ms, key.encode(), value, None))
        log.append(records)

    def _note(self, key: str, timestamp: int, price: int | None) -> None:
        versions = self._latest[key]
        if not versions or timestamp >= versions[-1].timestamp:
            versions.append(_Latest(self._count, timestamp, price))
        self._count += 1

    def latest(self, key: str, position: Mapping[str, Sequence[int]]) -> tuple[int, int] | None:
        """Return the latest price of a key below a position, and since when it is valid."""
        [end] = position[PRICES]
        with self._held:
            versions = self._latest.get(key, [])
            last = bisect_left(versions, end, key=lambda version: version.offset)
            _, timestamp, price = versions[last - 1] if last else (0, 0, None)
        return None if price is None else (price, timestamp)


def rate(user: str, timestamp: int) -> RawRecord:
    """Return the record of the rate of a user."""
    partition = partition_for_key(user.encode(), PARTITIONS)
    return RATES, partition, timestamp, user.encode(), rate_of(user).to_bytes(8), None
