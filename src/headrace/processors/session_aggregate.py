"""Fold the records of each key and session into one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.errors import RecordError
from headrace.processors.aggregate import StoredTable, warn_of_none
from headrace.processors.operation import NodeContext, Process, StoredValue, ValueGetter
from headrace.processors.window_close import closed_windows
from headrace.records import NO_HEADERS, Headers
from headrace.windows.session_windows import SessionWindows
from headrace.windows.window import Window, Windowed


@dataclass(frozen=True, kw_only=True)
class SessionAggregate(StoredTable):
    """Merge each record and the sessions it touches into one session.

    As in Kafka, a record without a value counts; only its key must be there.
    """

    windows: SessionWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]
    on_close: bool = False
    """Whether sessions are emitted once, when they take no more records."""

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        read = node.store(self.store_name).read_session

        def get(key: Any) -> StoredValue:
            value = read(key.key, key.window.start, key.window.end)
            return None if value is None else (value, key.window.end)

        return ValueGetter(get)

    def bind(self, node: NodeContext) -> Process:
        initializer, merger = self.initializer, self.merger
        gap, wait = self.windows.inactivity_gap_ms, self.windows.retention_ms
        store = node.store(self.store_name)
        find, value_of, fail, drop = store.find, store.value_of, node.fail, node.drop
        replace_sessions = self._bind_replace(node)
        emit_closed = self._bind_close(node) if self.on_close else None
        times = node.times
        stream_time: int = times.get("stream_time", -1)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal stream_time
            if key is None:
                return drop("null-key")
            if timestamp > stream_time:
                stream_time = times["stream_time"] = timestamp
            close_time = stream_time - wait
            first = last = timestamp
            try:
                aggregate = initializer()
                merged = find(key, timestamp - gap, timestamp + gap)
                for start, end, stored in merged:
                    aggregate = merger(key, aggregate, value_of(stored))
                    first, last = min(first, start), max(last, end)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            if last < close_time:
                drop("late")
            elif not replace_sessions(
                merged, (key, value, timestamp, headers), aggregate, first, last
            ):
                return None
            if emit_closed is not None:
                emit_closed(close_time, headers)
            return None

        return process

    def _bind_replace(self, node: NodeContext) -> Callable[..., bool]:
        """Return the function that puts one session in place of those it was made of."""
        aggregator, sends_old = self.aggregator, self.sends_old_values
        store, fail = node.store(self.store_name), node.fail
        write, discard, value_of = store.write, store.discard, store.value_of
        emits = not self.on_close and not store.caching
        emit = self._bind_emit(node, store)
        warn = warn_of_none(node.name)

        def replace_sessions(
            merged: list[tuple[int, int, Any]],
            record: tuple[Any, Any, int, Headers],
            aggregate: Any,
            first: int,
            last: int,
        ) -> bool:
            key, value, timestamp, headers = record
            # A session that is the record's own moment is overwritten, not replaced.
            if first != last or first != timestamp:
                for start, end, stored in merged:
                    discard(key, start, end, timestamp, headers)
                    if emits:
                        old = value_of(stored) if sends_old else None
                        emit(Windowed(key, Window(start, end)), None, old, end)
            try:
                new = aggregator(key, value, aggregate)
                if new is None and value is not None:
                    warn()
                write(key, first, last, new, timestamp, headers)
            except RecordError:
                raise  # of a child, as the cache made room: the handler has decided already
            except Exception as error:
                fail(error, key, value, timestamp, headers)
                return False
            if emits:
                emit(Windowed(key, Window(first, last)), new, None, last)
            return True

        return replace_sessions

    def _bind_emit(self, node: NodeContext, store: Any) -> Callable[[Any, Any, Any, int], None]:
        forward, sends_old = node.forward, self.sends_old_values
        if store.caching and not self.on_close:

            def flushed(key: Any, new: Any, old: Any, _timestamp: int, headers: Headers) -> None:
                change = (new, old if sends_old else None, True)
                forward(key, change, key.window.end, headers)

            store.on_flush(flushed, old_values=sends_old)

        def emit(key: Any, new: Any, old: Any, timestamp: int) -> None:
            # Kafka makes a new record here, which has no headers.
            forward(key, (new, old, True), timestamp, NO_HEADERS)

        return emit

    def _bind_close(self, node: NodeContext) -> Callable[[int, Headers], None]:
        store = node.store(self.store_name)
        return closed_windows(
            node, store.scan_ends, _closed, store.value_of, lambda key, _stored: int(key.window.end)
        )


def _closed(emitted: int, close_time: int) -> tuple[int, int] | None:
    """Return between which ends sessions closed since the last emission."""
    first, last = max(0, emitted), close_time - 1
    return (first, last) if last >= first else None
