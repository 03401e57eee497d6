"""Grouping keys that Spark's hash spreads evenly over the partitions of a shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

_SEED = 42
_FIRST_RELAY_KEY = 1 << 30
"""Tasks have the smallest keys that are free, so they never reach this one."""
_RELAY_KEYS = 16
"""How many relay keys a shuffle partition has."""


def shuffle_partition(grouping_key: int, partitions: int) -> int:
    """Return a key's shuffle partition: Spark's ``pmod(hash(grouping_key), partitions)``."""
    return _murmur3(grouping_key) % partitions


def grouping_keys_for(partition: int, partitions: int, *, negative: bool = False) -> Iterator[int]:
    """Yield the keys of a shuffle partition, those nearest to zero first.

    Spark passes the keys of a partition to their operator in ascending order, so negative ones come
    before all others.
    """
    candidates = count(-1, -1) if negative else count(0)
    return (
        grouping_key
        for grouping_key in candidates
        if shuffle_partition(grouping_key, partitions) == partition
    )


def relay_keys(firsts: Sequence[int]) -> list[list[int]]:
    """Return the keys under which rows pass through each shuffle partition.

    Args:
        firsts: The first one of each partition. The others are so large that no task has them.
    """
    keys = [[first] for first in firsts]
    missing = len(keys)
    for grouping_key in count(_FIRST_RELAY_KEY):
        own = keys[shuffle_partition(grouping_key, len(keys))]
        if len(own) < _RELAY_KEYS:
            own.append(grouping_key)
            missing -= len(own) == _RELAY_KEYS
            if not missing:
                break
    return keys


def _murmur3(value: int) -> int:
    """Return Spark's Murmur3 hash of an int, as a signed 32-bit number."""
    mixed = (value & 0xFFFFFFFF) * 0xCC9E2D51 & 0xFFFFFFFF
    mixed = (mixed << 15 | mixed >> 17) & 0xFFFFFFFF
    mixed = mixed * 0x1B873593 & 0xFFFFFFFF
    hashed = _SEED ^ mixed
    hashed = (hashed << 13 | hashed >> 19) & 0xFFFFFFFF
    hashed = (hashed * 5 + 0xE6546B64) & 0xFFFFFFFF
    hashed ^= 4
    hashed ^= hashed >> 16
    hashed = hashed * 0x85EBCA6B & 0xFFFFFFFF
    hashed ^= hashed >> 13
    hashed = hashed * 0xC2B2AE35 & 0xFFFFFFFF
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed
