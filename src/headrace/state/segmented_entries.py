"""Entries that expire: what window and session stores are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.state.maps import OrderedMap, SegmentedMap
from headrace.state.store_times import EntryTimes

EntryKey: TypeAlias = tuple[Any, ...]
"""Encoded key and times: ``(key, start)``, ``(key, start, sequence)`` or ``(key, end, start)``."""

Entry: TypeAlias = tuple[EntryKey, Any]
"""An entry as it is stored."""

_SHORTEST_SEGMENT_MS = 60_000


@dataclass(frozen=True)
class Expiry:
    """The time from which entries are seen, and from which writes are accepted."""

    retention_ms: int
    persistent: bool
    """Whether late writes are taken as long as their segment is there, as RocksDB stores do."""
    keeps_boundary: bool = False
    """Whether an entry exactly as old as the retention is still seen."""

    @property
    def segment_ms(self) -> int:
        """The length of a segment: Kafka's, so that what is dropped whole is the same."""
        return max(self.retention_ms // 2, _SHORTEST_SEGMENT_MS)

    def first_segment(self, time: int) -> int:
        """Return the first segment that stays when the store's time is ``time``."""
        return (time - self.retention_ms) // self.segment_ms


class ExpiringEntries:
    """Entries ordered by key, in segments of time, and on request also by time.

    The store's time is the latest that was put. The task saves it, because it decides which entries
    are seen and which writes are too late.

    ``by_time`` returns the key under which an entry is found by time. Even segments then hold the
    entries, and odd ones the same keys by time. ``refused`` is called for each write that is late.
    """

    def __init__(
        self,
        data: SegmentedMap[Any, Any],
        times: EntryTimes,
        expiry: Expiry,
        refused: Callable[[], None],
        *,
        by_time: Callable[[EntryKey], EntryKey] | None = None,
    ) -> None:
        self.persistent = expiry.persistent
        self._data = data
        self._times = times
        self._expiry = expiry
        self._refused = refused
        self._by_time = by_time
        self._stride = 1 if by_time is None else 2
        self._segment_ms = expiry.segment_ms
        self._unseen_after = expiry.retention_ms - (0 if expiry.keeps_boundary else 1)
        self._first_segment = 0
        self._drops_at = self._segment_ms + expiry.retention_ms
        self._refuse_before = 0
        self.time = times.time
        """The latest time that was put."""
        self.oldest = 0
        """The earliest time that is seen."""
        self._expire()

    def advance(self, time: int) -> None:
        """Set the store's time, if it is later, and drop the segments that have expired."""
        if time > self.time:
            self.time = self._times.time = time
            self._expire()

    def _expire(self) -> None:
        self.oldest = self.time - self._unseen_after
        if self.time >= self._drops_at:
            self._drop_segments()
        if not self.persistent:
            self._refuse_before = self.time - self._expiry.retention_ms + 1

    def _drop_segments(self) -> None:
        retention_ms, segment_ms = self._expiry.retention_ms, self._segment_ms
        self._first_segment = self._expiry.first_segment(self.time)
        self._refuse_before = self._first_segment * segment_ms
        self._drops_at = self._refuse_before + segment_ms + retention_ms
        self._data.drop_before(self._first_segment * self._stride)

    def get(self, time: int, key: EntryKey) -> Any:
        """Return what is stored under a key at a time, or None."""
        if time < self.oldest:
            return None
        segment = self._data.existing(time // self._segment_ms * self._stride)
        return None if segment is None else segment.get(key)

    def put(self, time: int, key: EntryKey, stored: Any) -> None:
        """Store an entry; one that is too late is refused and counted."""
        if time > self.time:
            self.advance(time)
        # With a retention of zero even the newest entry is too late for a store in memory.
        if time < self._refuse_before:
            return self._refused()
        number = time // self._segment_ms * self._stride
        segment = self._data.segment(number)
        if self._by_time is not None and segment.get(key) is None:
            self._data.segment(number + 1).put(self._by_time(key), key)
        return segment.put(key, stored)

    def pop(self, time: int, key: EntryKey) -> None:
        """Remove an entry, as `put` would replace it."""
        if time > self.time:
            self.advance(time)
        if time < self._refuse_before:
            self._refused()
        else:
            self.discard(time, key)

    def discard(self, time: int, key: EntryKey) -> bool:
        """Remove an entry if it is there, whatever its age; return whether it was."""
        number = time // self._segment_ms * self._stride
        segment = self._data.existing(number)
        if segment is None or segment.pop(key) is None:
            return False
        if self._by_time is not None:
            self._data.segment(number + 1).pop(self._by_time(key))
        return True

    def of_key(
        self, key: bytes, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[Entry]:
        """Return the entries of one key, from one time to another, both included."""
        first = max(first, self.oldest, 0)
        start, end, existing = (key, first), (key, last + 1), self._data.existing
        found: list[Entry] = []
        for number in self._numbers(first, last, reverse=reverse):
            segment = existing(number)
            if segment is not None:
                found += segment.scan(start, end, reverse=reverse)
        return iter(found)

    def of_keys(
        self,
        first_key: bytes | None,
        last_key: bytes | None,
        first: int,
        last: int,
        *,
        reverse: bool = False,
    ) -> Iterator[Entry]:
        """Return the entries of several keys between two times: by segment, then key, then time."""
        first = max(first, self.oldest)
        start, end = _key_bounds(first_key, last_key)
        found: list[Entry] = []
        if start is None or end is None or start < end:
            for segment in self._segments(first, last, reverse=reverse):
                entries = segment.scan(start, end, reverse=reverse)
                found += [entry for entry in entries if first <= entry[0][1] <= last]
        return iter(found)

    def of_times(
        self, first: int, last: int, *, reverse: bool = False, expired: bool = False
    ) -> Iterator[Entry]:
        """Return the entries between two times, by time; only if they are kept in that order.

        ``expired`` includes entries past the retention, as long as they are there.
        """
        first = max(first, 0 if expired else self.oldest)
        found: list[Entry] = []
        for number in self._numbers(first, last, reverse=reverse):
            ordered, segment = self._data.existing(number + 1), self._data.existing(number)
            if ordered is not None and segment is not None:
                keys = ordered.scan((first,), (last + 1,), reverse=reverse)
                found += [(key, segment.get(key)) for _, key in keys]
        return iter(found)

    def by_segment(self, entry: Entry) -> EntryKey:
        """Return what sorts entries as `of_keys` does."""
        return (entry[0][1] // self._segment_ms, *entry[0])

    def _segments(self, first: int, last: int, *, reverse: bool) -> Iterator[OrderedMap[Any, Any]]:
        for number in self._numbers(first, last, reverse=reverse):
            segment = self._data.existing(number)
            if segment is not None:
                yield segment

    def _numbers(self, first: int, last: int, *, reverse: bool) -> range:
        # Nothing is older than the first segment or later than the store's time: a few segments.
        segment_ms, stride = self._segment_ms, self._stride
        low = max(first // segment_ms, self._first_segment) * stride
        high = min(last, self.time) // segment_ms * stride
        return range(high, low - 1, -stride) if reverse else range(low, high + 1, stride)


class RetainedEntries(ExpiringEntries):
    """Entries that a reader opens, or a changelog fills: none is dropped, and none refused.

    Nothing changes them while they are read, so long scans need no list. They have no second order:
    `of_times` sorts what it finds.
    """

    def __init__(
        self,
        data: SegmentedMap[Any, Any],
        times: EntryTimes,
        expiry: Expiry,
        *,
        by_time: Callable[[EntryKey], EntryKey] | None = None,
    ) -> None:
        super().__init__(data, times, expiry, lambda: None)
        self._time_order = by_time

    def _expire(self) -> None:
        self.oldest = self.time - self._unseen_after

    def of_keys(
        self,
        first_key: bytes | None,
        last_key: bytes | None,
        first: int,
        last: int,
        *,
        reverse: bool = False,
    ) -> Iterator[Entry]:
        first = max(first, self.oldest)
        start, end = _key_bounds(first_key, last_key)
        if start is not None and end is not None and start >= end:
            return
        for segment in self._segments(first, last, reverse=reverse):
            for entry in segment.scan(start, end, reverse=reverse):
                if first <= entry[0][1] <= last:
                    yield entry

    def of_times(
        self, first: int, last: int, *, reverse: bool = False, expired: bool = False
    ) -> Iterator[Entry]:
        assert not expired, "only operations of the application see what has expired"
        by_time = self._time_order
        assert by_time is not None, "the store is kept by time"
        entries = self.of_keys(None, None, first, last)
        return iter(sorted(entries, key=lambda entry: by_time(entry[0]), reverse=reverse))


def _key_bounds(
    first_key: bytes | None, last_key: bytes | None
) -> tuple[tuple[bytes] | None, tuple[bytes] | None]:
    """Return where the entries of some keys begin and end; None: at the first, behind the last."""
    # The least bytes greater than a key are the key and a zero byte.
    return (
        None if first_key is None else (first_key,),
        None if last_key is None else (last_key + b"\0",),
    )
