"""Batch boundaries: the offsets and the clock of a batch, the same in every replay.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """The facts of a batch that every payload of it carries."""

    clock: int
    """The time of day of the batch."""
    digest: str
    """Identifies the boundaries of the batch."""
    is_new: bool = False
    """Whether no query has run the batch before, so that none of its output can be written."""


class BatchBoundary(msgspec.Struct, frozen=True):
    """The end of one batch and the start of the next. Spark stores it as JSON in its batch log."""

    offsets: dict[str, list[int]]
    """For each topic the next offset of each partition."""
    clock: int
    """The time of day of the batch that ends here; earlier than the last only after a start."""
    partitions_with_more: dict[str, list[int]] = {}
    """The partitions that hold records past the end of the batch."""
    start_overrides: dict[str, dict[str, int]] = {}
    """Where the batch begins in partitions that are new, or that have lost records."""
    global_load_ends: dict[str, list[int]] = {}
    """Up to where batches read global tables before they read anything else."""
    calls_all_tasks: bool = False
    """Whether the batch calls every task with stores, so that each reports."""

    def as_dict(self) -> dict[str, Any]:
        """Return the boundary as plain data, for Spark."""
        data = msgspec.to_builtins(self)
        assert isinstance(data, dict)
        if not self.calls_all_tasks:
            del data["calls_all_tasks"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BatchBoundary:
        """Return a boundary from plain data."""
        return msgspec.convert(data, cls)

    def offset(self, topic: str, partition: int) -> int:
        """Return the next offset of a partition; 0 if no batch has read it."""
        offsets = self.offsets.get(topic, ())
        return offsets[partition] if partition < len(offsets) else 0


def digest(start: BatchBoundary, end: BatchBoundary) -> str:
    """Return the batch digest: a hash of both boundaries."""
    data = msgspec.json.encode((start.as_dict(), end.as_dict()))
    return hashlib.sha256(data).hexdigest()[:16]


class Range(msgspec.Struct, frozen=True):
    """The offsets of one partition that a batch reads."""

    topic: str
    partition: int
    start: int
    end: int


def ranges(start: BatchBoundary, end: BatchBoundary) -> list[Range]:
    """Return the offset ranges of a batch, in the order of topics and partitions."""
    offset_ranges = []
    for topic, offsets in sorted(end.offsets.items()):
        moved = end.start_overrides.get(topic, {})
        for partition, until in enumerate(offsets):
            first = moved.get(str(partition), start.offset(topic, partition))
            if until > first:
                offset_ranges.append(Range(topic, partition, first, until))
    return offset_ranges


def lost_ranges(start: BatchBoundary, end: BatchBoundary) -> list[Range]:
    """Return the offset ranges that a batch skips, because their records are deleted."""
    return [
        Range(topic, int(partition), start.offset(topic, int(partition)), first)
        for topic, moved in end.start_overrides.items()
        for partition, first in moved.items()
        if int(partition) < len(start.offsets.get(topic, ()))
    ]
