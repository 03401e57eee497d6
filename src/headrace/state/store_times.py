"""The facts that each type of store saves besides its entries: times and counters.

A task saves them with its task state, and a reader of changelogs needs them to see what the task
sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import msgspec

from headrace.durations import MAX_MS


class StoreTimes(msgspec.Struct, omit_defaults=True):
    """The times of a store that saves none."""

    @classmethod
    def from_saved(cls, saved: Mapping[str, int]) -> Self:
        """Return times from the plain data of `saved`."""
        return msgspec.convert(saved, cls)

    def saved(self) -> dict[str, int]:
        """Return the times as plain data, without the fields that nothing has changed."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


class EntryTimes(StoreTimes):
    """The times of a session store or a versioned store."""

    time: int = -1
    """The store's time: the latest that was put."""


class WindowTimes(EntryTimes):
    """The times of a window store."""

    sequence: int = 0
    """The number of the last value put, in a store that retains duplicates."""


class LruTimes(StoreTimes):
    """The counter of an LRU map."""

    uses: int = 0


class UnmatchedTimes(StoreTimes):
    """The times of the unmatched records of a join."""

    stream_time: int = -1
    earliest: int = MAX_MS


class JoinBufferTimes(StoreTimes):
    """The time of a join buffer, and how many records it has held."""

    time: int = -1
    sequence: int = 0


class SuppressTimes(StoreTimes):
    """The earliest time of a suppress buffer, and how many changes and bytes it holds."""

    earliest: int = MAX_MS
    records: int = 0
    size: int = 0
