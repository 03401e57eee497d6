"""Fold the records of each key into sliding windows.

A record at t, with a difference of d, changes the windows that hold it and makes new ones::

    left window of t       [t - d, t]           the record, and what came up to d before it
    right window of p      [p + 1, p + 1 + d]   once t lies in it, p being the record before t
    right window of t      [t + 1, t + 1 + d]   once a later record lies in it

No window starts before 0: records before d share the window [0, d].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.errors import RecordError
from headrace.processors.aggregate import warn_of_none
from headrace.processors.operation import NodeContext, Process
from headrace.processors.window_close import Bounds, WindowedTable, forward_flushed
from headrace.records import Headers
from headrace.windows.sliding_windows import SlidingWindows
from headrace.windows.window import Window, Windowed


class _SkippedError(Exception):
    """User code failed, and the handler decided to leave the record out."""


@dataclass(frozen=True, kw_only=True)
class SlidingAggregate(WindowedTable):
    """Fold each record into the aggregates of its key, one per window that it is in."""

    windows: SlidingWindows

    def bind(self, node: NodeContext) -> Process:
        difference, grace = self.windows.time_difference_ms, self.windows.grace_ms
        times, drop = node.times, node.drop
        sliding = _Sliding(self, node)
        insert = sliding.insert if difference > 0 else sliding.refuse
        insert_early = sliding.insert_early
        emit_closed = self._bind_close(node, _closed(difference)) if self.on_close else None
        stream_time: int = times.get("stream_time", -1)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal stream_time
            if key is None or value is None:
                return drop("null-key" if key is None else "null-value")
            if timestamp > stream_time:
                stream_time = times["stream_time"] = timestamp
            close_time = stream_time - grace
            if timestamp + difference < close_time:
                return drop("late")
            record = (key, value, timestamp, headers)
            try:
                if timestamp < difference:
                    # As in Kafka, a record this early emits no closed windows.
                    return insert_early(record, close_time)
                insert(record, close_time)
            except _SkippedError:
                return None
            if emit_closed is not None:
                emit_closed(close_time, headers)
            return None

        return process


_Record = tuple[Any, Any, int, Headers]


class _Sliding:
    """The windows of one node; a record in, its windows changed and emitted.

    The order of what is emitted is Kafka's: existing windows from the latest to the earliest, the
    right window of the record before, the record's left window, its right window. Early records:
    existing windows from the earliest on, and [0, d] last.
    """

    def __init__(self, operation: SlidingAggregate, node: NodeContext) -> None:
        self._difference = operation.windows.time_difference_ms
        self._initializer = operation.initializer
        self._aggregator = operation.aggregator
        self._node = node
        self._store = store = node.store(operation.store_name)
        self._emits = not operation.on_close and not store.caching
        self._sends_old = operation.sends_old_values and self._emits
        if store.caching:
            forward_flushed(node, store, old_values=operation.sends_old_values)
        self._warn = warn_of_none(node.name)

    def refuse(self, record: _Record, _close_time: int) -> None:
        """Fail: with a difference of 0 the window of a record would be empty, as in Kafka."""
        msg = (
            f"The sliding windows of step {self._node.name!r} have a time difference of 0, so that "
            "they are empty. Use one millisecond or more."
        )
        key, value, timestamp, headers = record
        self._node.fail(ValueError(msg), key, value, timestamp, headers)

    def insert(self, record: _Record, close_time: int) -> None:
        """Change and make the windows of a record at ``difference`` or later."""
        key, _, timestamp, _ = record
        store, difference = self._store, self._difference
        right = left = previous = None
        has_left = has_right = False
        starts = set()
        first = max(0, timestamp - 2 * difference)
        for start, stored in store.scan_key(key, first, timestamp + 1, reverse=True):
            starts.add(start)
            end, latest = start + difference, store.timestamp_of(stored)
            if end < timestamp:
                left, previous = stored, latest
                break
            if start > timestamp:
                has_right = True
                continue
            self._update(record, start, stored, latest, close_time)
            if end > timestamp:
                right = stored if right is None else right
            elif latest < timestamp:
                has_left, previous = True, latest
            else:
                return
        if (
            previous is not None
            and previous + 1 not in starts
            and previous + 1 + difference >= timestamp
        ):
            self._update(record, previous + 1, None, timestamp, close_time)
        if not has_left:
            reaches = previous is not None and timestamp - difference <= previous
            seed = left if reaches else None
            self._update(record, timestamp - difference, seed, timestamp, close_time)
        if not has_right:
            self._make_right(record, right)

    def insert_early(self, record: _Record, close_time: int) -> None:
        """Change and make the windows of a record before ``difference``."""
        key, _, timestamp, _ = record
        store = self._store
        combined = right = previous = None
        has_right = False
        starts = set()
        for start, stored in store.scan_key(key, 0, timestamp + 1):
            starts.add(start)
            latest = store.timestamp_of(stored)
            if start == 0:
                combined, previous = stored, latest if latest < timestamp else None
            elif start <= timestamp:
                right = stored
                self._update(record, start, stored, latest, close_time)
            else:
                has_right = True
        if right is None:
            # Then all that [0, d] holds of later records belongs to the right window.
            right = combined
        if not has_right:
            self._make_right(record, right)
        if previous is not None and previous + 1 not in starts:
            self._update(record, previous + 1, None, timestamp, close_time)
        latest = timestamp if combined is None else store.timestamp_of(combined)
        self._update(record, 0, combined, latest, close_time)

    def _update(self, record: _Record, start: int, seed: Any, latest: int, close_time: int) -> None:
        """Add a record to a window that holds what ``seed`` does; None: nothing yet."""
        key, value, timestamp, headers = record
        if start + self._difference < close_time:
            return self._node.drop("late")
        try:
            aggregate, old = self._seeded(seed), None
            if self._sends_old:
                # The aggregator may change its argument, so the old value is decoded again.
                old = self._seeded(seed)
            latest = timestamp if aggregate is None else max(timestamp, latest)
            new = self._aggregator(key, value, aggregate)
            if new is None:
                self._warn()
            self._store.write(key, start, new, timestamp if new is None else latest, headers)
        except RecordError:
            raise  # of a child, as the cache made room: the handler has decided already
        except Exception as error:
            self._node.fail(error, key, value, timestamp, headers)
            raise _SkippedError from error
        return self._forward(record, start, new, old, latest)

    def _seeded(self, seed: Any) -> Any:
        return self._initializer() if seed is None else self._store.value_of(seed)

    def _make_right(self, record: _Record, seed: Any) -> None:
        """Make the right window of a record, if later records lie in it."""
        key, _, timestamp, headers = record
        if seed is None:
            return
        latest = self._store.timestamp_of(seed)
        if latest > timestamp:
            value = self._store.value_of(seed)
            self._store.write(key, timestamp + 1, value, latest, headers)
            self._forward(record, timestamp + 1, value, None, latest)

    def _forward(self, record: _Record, start: int, new: Any, old: Any, latest: int) -> None:
        if self._emits:
            window = Window(start, start + self._difference)
            self._node.forward(Windowed(record[0], window), (new, old, True), latest, record[3])


def _closed(difference: int) -> Bounds:
    """Return which windows, by their start, have an end that the close time passed."""

    def bounds(emitted: int, close_time: int) -> tuple[int, int] | None:
        last = close_time - difference - 1
        if last < 0:
            return None
        return 0 if emitted == -1 else max(0, emitted - difference), last

    return bounds
