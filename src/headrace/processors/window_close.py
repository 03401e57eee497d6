"""Shared by windowed aggregations: emit cached updates and closed windows, and look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from headrace.processors.operation import NodeContext, StoredValue, ValueGetter
from headrace.records import Headers

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

    Args:
        node: The node that forwards. It remembers how far it came.
        scan: Reads windows from the store.
        bounds: Says which of them closed.
        value_of: Gives the value of what is stored.
        timestamp_of: Gives the timestamp to emit, from the windowed key and what is stored.
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
        for key, stored in scan(*closed):
            forward(key, (value_of(stored), None, True), timestamp_of(key, stored), headers)
        emitted = times["emitted"] = close_time

    return emit


def window_getter(node: NodeContext, store_name: str) -> ValueGetter:
    """Return the look-up of a table of windows."""
    read = node.store(store_name).read

    def get(key: Any) -> StoredValue:
        stored: StoredValue = read(key.key, key.window.start)
        return stored

    return ValueGetter(get)
