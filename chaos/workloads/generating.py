"""Input records: each has an id of its own, and depends on the seed and its number alone."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from chaos.contract import Sent
from chaos.oracle import partition_for

PARTITIONS = 3
FIRST_MS = 1_767_225_600_000
"""The first day of 2026."""

SETTINGS = {"statestore_cache_max_bytes": 0}
"""Every update shows."""


def chance(seed: int, number: int) -> Random:
    """Return what decides about a record."""
    return Random(f"{seed}/{number}")


def sent(topic: str, key: str, timestamp: int, fields: dict[str, Any] | None) -> Sent:
    """Return a record, in the partition of its key."""
    partition = partition_for(key.encode(), PARTITIONS)
    value = None if fields is None else json.dumps(fields).encode()
    return Sent(topic, partition, key.encode(), value, timestamp)


def identity(seed: int, key: str, number: int) -> str:
    """Return the id of a record: its run, its partition and its number."""
    return f"r{seed}.p{partition_for(key.encode(), PARTITIONS)}.{number}"


def event(topic: str, seed: int, number: int, *, keys: int, **fields: Any) -> Sent:
    """Return an event with an amount; events come ten a second, up to three seconds late."""
    random = chance(seed, number)
    key = f"key-{random.randrange(keys)}"
    timestamp = FIRST_MS + 100 * number + random.choice((0, 0, 0, -random.randrange(3_000)))
    amount = random.randrange(1, 1_000)
    return sent(
        topic, key, timestamp, {"id": identity(seed, key, number), "amount": amount, **fields}
    )
