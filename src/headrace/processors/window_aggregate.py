"""Fold the records of each key and window into one value: tumbling, hopping, unlimited windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.errors import RecordError
from headrace.processors.aggregate import warn_of_none
from headrace.processors.operation import NodeContext, Process
from headrace.processors.window_close import Bounds, WindowedTable, forward_flushed
from headrace.records import Headers
from headrace.windows.time_windows import TimeWindows
from headrace.windows.unlimited_windows import UnlimitedWindows
from headrace.windows.window import Window, Windowed


@dataclass(frozen=True, kw_only=True)
class WindowAggregate(WindowedTable):
    """Fold each record into the aggregates of its key, one per window that it is in.

    As in Kafka, a record without a value counts; only its key must be there.
    """

    windows: TimeWindows | UnlimitedWindows

    def bind(self, node: NodeContext) -> Process:
        update = self._bind_update(node)
        times, drop = node.times, node.drop
        starts, size = _window_starts(self.windows), self.windows.size_ms
        grace = self.windows.grace_ms
        closed = _closed(starts, size)
        emit_closed = self._bind_close(node, closed) if self.on_close else None
        is_tumbling = _is_tumbling(self.windows)
        stream_time: int = times.get("stream_time", -1)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal stream_time
            if key is None:
                return drop("null-key")
            if timestamp > stream_time:
                stream_time = times["stream_time"] = timestamp
            close_time = stream_time - grace
            for start in (timestamp - timestamp % size,) if is_tumbling else starts(timestamp):
                if start + size <= close_time:
                    drop("late")
                elif not update(key, value, start, timestamp, headers):
                    return None
            if emit_closed is not None:
                emit_closed(close_time, headers)
            return None

        return process

    def _bind_update(self, node: NodeContext) -> Callable[[Any, Any, int, int, Headers], bool]:
        """Return the function that updates one window; it says whether user code succeeded."""
        store = node.store(self.store_name)
        if store.caching:
            if not self.on_close:
                forward_flushed(node, store, old_values=self.sends_old_values)
            return self._bind_cached_update(node, store)
        initializer, aggregator, size = self.initializer, self.aggregator, self.windows.size_ms
        read, write, fail, forward = store.read, store.write, node.fail, node.forward
        emits = not self.on_close
        sends_old = self.sends_old_values and emits
        warn = warn_of_none(node.name)

        def update(key: Any, value: Any, start: int, timestamp: int, headers: Headers) -> bool:
            old, latest = None, timestamp
            try:
                stored = read(key, start)
                if stored is None:
                    old = initializer() if sends_old else None
                    new = aggregator(key, value, initializer())
                else:
                    # The aggregator may change its argument, so the old value is read again.
                    old = read(key, start)[0] if sends_old else None
                    new = aggregator(key, value, stored[0])
                    latest = max(timestamp, stored[1])
                if new is None and value is not None:
                    warn()
                write(key, start, new, timestamp if new is None else latest, headers)
            except Exception as error:
                fail(error, key, value, timestamp, headers)
                return False
            if emits:
                windowed = Windowed(key, Window(start, start + size))
                forward(windowed, (new, old, True), latest, headers)
            return True

        return update

    def _bind_cached_update(
        self, node: NodeContext, store: Any
    ) -> Callable[[Any, Any, int, int, Headers], bool]:
        """Return the same for a store that holds changes back, and emits them when it writes."""
        initializer, aggregator, fail = self.initializer, self.aggregator, node.fail
        cache_key_of, entry_at, hold_again = store.cache_key_of, store.entry_at, store.hold_again
        warn = warn_of_none(node.name)

        def update(key: Any, value: Any, start: int, timestamp: int, headers: Headers) -> bool:
            latest = timestamp
            try:
                cache_key = cache_key_of(key, start)
                entry = entry_at(cache_key, key)
                if entry.value is None:
                    new = aggregator(key, value, initializer())
                else:
                    new = aggregator(key, value, entry.value)
                    if entry.timestamp > latest:
                        latest = entry.timestamp
                if new is None:
                    latest = timestamp
                    if value is not None:
                        warn()
                hold_again(cache_key, entry, new, latest, headers)
            except RecordError:
                raise  # of a child, as the cache made room: the handler has decided already
            except Exception as error:
                fail(error, key, value, timestamp, headers)
                return False
            return True

        return update


def _is_tumbling(windows: TimeWindows | UnlimitedWindows) -> bool:
    return isinstance(windows, TimeWindows) and windows.advance_ms == windows.size_ms


def _window_starts(windows: TimeWindows | UnlimitedWindows) -> Callable[[int], Iterable[int]]:
    if _is_tumbling(windows):
        size = windows.size_ms
        return lambda timestamp: (timestamp - timestamp % size,)
    return windows.window_starts


def _closed(starts: Callable[[int], Iterable[int]], size: int) -> Bounds:
    """Return which windows, by their start, have an end that the close time reached."""

    def bounds(emitted: int, close_time: int) -> tuple[int, int] | None:
        last = close_time - size
        if last < 0:
            return None
        if emitted == -1:
            return 0, last
        first = max(0, emitted - size) + 1
        # The same windows as last time: none closed since.
        return None if starts(last) == starts(first - 1) else (first, last)

    return bounds
