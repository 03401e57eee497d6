"""Measures some of the records that a task processes: how long they take, and how late they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from headrace.metrics import Histogram

MEASURED = 8
"""How many records a task measures together, because a switch takes as long as some of them."""
CYCLE = 16_384
"""A task measures again after so many records."""

NODE_SECONDS = (
    *(2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4),
    *(1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.2, 1.0),
)
"""The upper ends of the buckets of `SourceSamples.seconds`, in seconds."""
LATENESS_SECONDS = (0.0, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3600.0, 86400.0)
"""The upper ends of the buckets of `SourceSamples.lateness`, in seconds."""

Timer: TypeAlias = Callable[[], float]
"""Returns the seconds since some moment."""


class SourceSamples(msgspec.Struct, array_like=True):
    """The measured records of a source node."""

    seconds: Histogram = msgspec.field(default_factory=Histogram)
    """How long a record took in all nodes of its subtopology, in seconds."""
    lateness: Histogram = msgspec.field(default_factory=Histogram)
    """How far its timestamp was behind stream time, in seconds."""

    def merge(self, other: SourceSamples) -> None:
        """Add other samples of the node."""
        self.seconds.merge(other.seconds)
        self.lateness.merge(other.lateness)


class Measurements:
    """The measured records of one input of a task, as numbers."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.late_ms: list[int] = []

    def take(self) -> SourceSamples:
        """Return the samples since the last call."""
        samples = SourceSamples()
        samples.seconds.add(self.seconds, NODE_SECONDS)
        samples.lateness.add([each / 1_000 for each in self.late_ms], LATENESS_SECONDS)
        self.seconds.clear()
        self.late_ms.clear()
        return samples
