"""Shared by windowed aggregations: emit cached updates and closed windows, and look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.processors.aggregate import StoredTable
from headrace.processors.operation import NodeContext, StoredValue, ValueGetter
from headrace.records import Headers

FINAL_EMIT = "emit-final-records"
"""The event of a window that is emitted because it has closed, by Kafka's name."""

Bounds: TypeAlias = Callable[[int, int], tuple[int, int] | None]
"""Which times to look at: f(close time of the last emission or -1, close time); None: nothing."""

Scan: TypeAlias = Callable[[int, int], Iterable[tuple[Any, Any]]]
"""Finds windowed keys and what is stored of them between two times, in the order of time."""


def forward_flushed(node: NodeContext, store: Any, *, old_values: bool) -> None:
    """Forward the changes of windows when the cache of their store writes them."""
    forward = node.forward

    def flushed(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        forward(key, (new, old if old_values else None, True), timestamp, headers)

    store.on_flush(flushed, old_values=old_values)


def closed_windows(
    node: NodeContext,
    scan: Scan,
    bounds: Bounds,
    value_of: Callable[[Any], Any],
    timestamp_of: Callable[[Any, Any], int],
) -> Callable[[int, Headers], None]:
    """Return the function that forwards the windows that closed since it was last called.

    ``timestamp_of(key, stored)`` returns the timestamp to emit. The node keeps the last close time.
    """
    times, forward = node.times, node.forward
    emitted: int = times.get("emitted", -1)

    def emit(close_time: int, headers: Headers) -> None:
        nonlocal emitted
        if emitted != -1 and close_time <= emitted:
            return
        closed = bounds(emitted, close_time)
        if closed is None:
            return
        windows = 0
        for key, stored in scan(*closed):
            windows += 1
            forward(key, (value_of(stored), None, True), timestamp_of(key, stored), headers)
        if windows:
            node.count(FINAL_EMIT, windows)
        emitted = times["emitted"] = close_time

    return emit


@dataclass(frozen=True, kw_only=True)
class WindowedTable(StoredTable):
    """Fold each record into the aggregates of its key, one per window that it is in."""

    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    on_close: bool = False
    """Whether windows are emitted once, when they take no more records."""

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        read = node.store(self.store_name).read

        def get(key: Any) -> StoredValue:
            stored: StoredValue = read(key.key, key.window.start)
            return stored

        return ValueGetter(get)

    def _bind_close(self, node: NodeContext, bounds: Bounds) -> Callable[[int, Headers], None]:
        store = node.store(self.store_name)
        return closed_windows(
            node,
            store.scan_times,
            bounds,
            store.value_of,
            lambda _key, stored: int(store.timestamp_of(stored)),
        )
