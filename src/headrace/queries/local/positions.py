"""Positions in Kafka's words: the last offset of each input partition that is reflected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.runtime.snapshots import Offsets


@dataclass(frozen=True)
class Position:
    """The last offsets of inputs that an answer reflects."""

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By topic and partition."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the position."""
        return frozenset(self.offsets)

    def partition_positions(self, topic: str) -> Mapping[int, int]:
        """Return the offsets of a topic by partition."""
        return self.offsets.get(topic, {})

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Return this position with another offset of one partition."""
        partitions = {**self.partition_positions(topic), partition: offset}
        return Position({**self.offsets, topic: partitions})

    def merge(self, other: Position) -> Position:
        """Return the higher offset of each partition."""
        merged = {topic: dict(offsets) for topic, offsets in self.offsets.items()}
        for topic, offsets in other.offsets.items():
            partitions = merged.setdefault(topic, {})
            for partition, offset in offsets.items():
                partitions[partition] = max(offset, partitions.get(partition, offset))
        return Position(merged)

    @staticmethod
    def of_snapshot(offsets: Offsets) -> Position:
        """Return the position of a snapshot, which names the offsets that come next."""
        return Position(
            {
                topic: {number: after - 1 for number, after in enumerate(each) if after > 0}
                for topic, each in offsets.items()
            }
        )


@dataclass(frozen=True)
class PositionBound:
    """The offsets that an answer must reflect at least."""

    position: Position = field(default_factory=Position)

    @staticmethod
    def unbounded() -> PositionBound:
        """Return the bound that every answer meets."""
        return PositionBound()

    @staticmethod
    def at(position: Position) -> PositionBound:
        """Return the bound that answers meet which reflect a position."""
        return PositionBound(position)

    def is_met_by(self, reached: Position) -> bool:
        """Return whether a position reflects everything that the bound names."""
        return all(
            reached.partition_positions(topic).get(partition, -1) >= offset
            for topic, offsets in self.position.offsets.items()
            for partition, offset in offsets.items()
        )
