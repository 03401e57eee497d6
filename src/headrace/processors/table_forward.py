"""Reads the stores of table operations, and hands changes downstream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.processors.operation import NodeContext, ValueGetter
from headrace.records import Headers

Emit: TypeAlias = Callable[[Any, Any, Any, int, Headers, bool], None]
"""Hands a change downstream: key, new, old, timestamp, headers, is it the latest."""

NOT_PUT = -(2**63)
"""The result of `write` if a versioned store refused an update as too old."""

IS_LATEST = -1
"""The result of `write` if the value is now the current one of its key."""


def change_emitter(node: NodeContext, store: Any, *, old_values: bool) -> Emit:
    """Return the function that forwards the changes of ``store``.

    Behind a cache that is done when the cache writes, so the function does nothing.
    """
    forward = node.forward
    if store.caching:

        def flushed(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
            forward(key, (new, old if old_values else None, True), timestamp, headers)

        store.on_flush(flushed, old_values=old_values)
        return _held_back
    if old_values:

        def emit_both(
            key: Any, new: Any, old: Any, timestamp: int, headers: Headers, latest: bool
        ) -> None:
            forward(key, (new, old, latest), timestamp, headers)

        return emit_both

    def emit_new(
        key: Any, new: Any, _old: Any, timestamp: int, headers: Headers, latest: bool
    ) -> None:
        forward(key, (new, None, latest), timestamp, headers)

    return emit_new


def _held_back(
    key: Any, new: Any, old: Any, timestamp: int, headers: Headers, latest: bool
) -> None:
    """Leave a change to the cache."""


def store_getter(node: NodeContext, name: str) -> ValueGetter:
    """Return the look-up of a table that has a store."""
    store = node.store(name)
    return ValueGetter(store.read, getattr(store, "read_as_of", None))
