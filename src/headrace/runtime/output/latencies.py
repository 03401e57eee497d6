"""Measures the time from the timestamp of a record until a batch has written it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.metrics import Histogram

LATENCY_SECONDS = (
    *(0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0),
    *(10.0, 30.0, 60.0, 300.0, 3600.0, 86400.0),
)
"""The upper ends of the buckets of a latency, in seconds."""
_MOST_MEASURED = 256
"""How many records of a payload are measured. In a larger one each counts for those behind it."""


class Latencies:
    """Timestamps of records that are being written, by topic."""

    def __init__(self) -> None:
        self._timestamps: dict[str, list[tuple[Sequence[int], int]]] = {}

    def add(self, topic: str, timestamps: Sequence[int]) -> None:
        """Keep some timestamps of a payload."""
        every = 1 + (len(timestamps) - 1) // _MOST_MEASURED
        whole = len(timestamps) // every * every
        parts = self._timestamps.setdefault(topic, [])
        parts.append((timestamps[:whole:every], every))
        if whole < len(timestamps):
            parts.append((timestamps[whole : whole + 1], len(timestamps) - whole))

    def histograms(self, now: int) -> dict[str, Histogram]:
        """Return the latencies by topic. A timestamp of the future has none.

        Args:
            now: When the records were written, in milliseconds.
        """
        found: dict[str, Histogram] = {}
        for topic, parts in self._timestamps.items():
            histogram = found[topic] = Histogram()
            for timestamps, count in parts:
                seconds = [max(0, now - each) / 1_000 for each in timestamps]
                histogram.add(seconds, LATENCY_SECONDS, count)
        return found
