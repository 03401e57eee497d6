"""Positions: how far a batch reads, and everything else that a replay of it must know."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """What all parcels of a batch know: it decides how a replay goes, so it travels with them."""

    clock: int
    """The time of day of the batch."""
    digest: str
    """Stands for the offsets the batch starts and ends at."""
    is_new: bool = False
    """Whether no query has run it before, so that nothing of it was written before its tasks."""


class BatchBoundary(msgspec.Struct, frozen=True):
    """The offsets between two batches; Spark keeps them as JSON in the checkpoint."""

    offsets: dict[str, list[int]]
    """For each topic the next offset of each partition."""
    clock: int
    """The time of day of the batch that ends here; earlier than the last only after a start."""
    partitions_with_more: dict[str, list[int]] = {}
    """The partitions that hold records past the end of the batch."""
    start_overrides: dict[str, dict[str, int]] = {}
    """Where the batch starts reading partitions that were not read before, or were cut off."""
    global_load_ends: dict[str, list[int]] = {}
    """Up to where global tables are read before anything else is."""

    def as_dict(self) -> dict[str, Any]:
        """Return the position as Spark wants it."""
        data = msgspec.to_builtins(self)
        assert isinstance(data, dict)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BatchBoundary:
        """Return the position that Spark hands back."""
        return msgspec.convert(data, cls)

    def offset(self, topic: str, partition: int) -> int:
        """Return the next offset of a partition; 0 if it was never read."""
        offsets = self.offsets.get(topic, ())
        return offsets[partition] if partition < len(offsets) else 0


def digest(start: BatchBoundary, end: BatchBoundary) -> str:
    """Return what stands for a batch among its markers."""
    data = msgspec.json.encode((start.as_dict(), end.as_dict()))
    return hashlib.sha256(data).hexdigest()[:16]


class Range(msgspec.Struct, frozen=True):
    """Offsets of one partition that one batch reads."""

    topic: str
    partition: int
    start: int
    end: int


def ranges(start: BatchBoundary, end: BatchBoundary) -> list[Range]:
    """Return what a batch reads, in the order of topics and partitions."""
    found = []
    for topic, offsets in sorted(end.offsets.items()):
        moved = end.start_overrides.get(topic, {})
        for partition, until in enumerate(offsets):
            first = moved.get(str(partition), start.offset(topic, partition))
            if until > first:
                found.append(Range(topic, partition, first, until))
    return found


def lost_ranges(start: BatchBoundary, end: BatchBoundary) -> list[Range]:
    """Return what a batch leaves out of partitions that were read before, because it was gone."""
    return [
        Range(topic, int(partition), start.offset(topic, int(partition)), first)
        for topic, moved in end.start_overrides.items()
        for partition, first in moved.items()
        if int(partition) < len(start.offsets.get(topic, ()))
    ]
