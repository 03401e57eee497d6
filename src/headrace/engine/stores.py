"""Open the stores of a task over the maps its runtime brings."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import replace
from typing import Any, Protocol

from headrace.errors import StateStoreError
from headrace.serdes.base import serde_for_topic
from headrace.state.bounded import Expiring, LeastRecentlyUsed
from headrace.state.cache import CachedTimestampedKeyValue, RecordCache
from headrace.state.cached_windows import CachedSession, CachedWindow
from headrace.state.expiring import EntryKey, ExpiringEntries, Expiry
from headrace.state.join_stores import JoinBuffer, Unmatched
from headrace.state.key_value import KeyValue, TimestampedKeyValue
from headrace.state.maps import MemoryMap, MemorySegments, OrderedMap, SegmentedMap
from headrace.state.session import (
    SessionEntries,
    session_by_time,
    session_in_memory_by_time,
)
from headrace.state.specs import StoreBuilder
from headrace.state.subscriptions import Subscriptions
from headrace.state.suppress_buffer import SuppressBuffer
from headrace.state.versioned import Versioned
from headrace.state.window import WindowEntries, window_by_time
from headrace.topology.naming import changelog_topic


class StoreData(Protocol):
    """Holds what the stores of one task hold; each runtime brings its own."""

    def map(self, store: StoreBuilder[Any], /) -> OrderedMap[Any, Any]:
        """Return the map of a store without segments."""
        ...

    def segments(self, store: StoreBuilder[Any], /) -> SegmentedMap[Any, Any]:
        """Return the map of a store whose entries expire."""
        ...


class MemoryStores:
    """A `StoreData` in memory; it outlives the task that fills it."""

    def __init__(self) -> None:
        self._maps: dict[str, MemoryMap[Any, Any]] = {}
        self._segments: dict[str, MemorySegments[Any, Any]] = {}

    def map(self, store: StoreBuilder[Any], /) -> MemoryMap[Any, Any]:
        return self._maps.setdefault(store.name, MemoryMap())

    def segments(self, store: StoreBuilder[Any], /) -> MemorySegments[Any, Any]:
        return self._segments.setdefault(store.name, MemorySegments())


class StoreContext(Protocol):
    """What a store may ask of the task it belongs to."""

    cache: RecordCache | None
    """The memory for held-back writes, or None if they go straight through."""

    stream_time: int
    """The task's stream time."""

    def drop(self, store: str, reason: str, /) -> None:
        """Count a write that a store refused."""
        ...


def bound_to_changelog(store: StoreBuilder[Any], application_id: str) -> StoreBuilder[Any]:
    """Return a store whose serdes know the topic they write for: its changelog, as in Kafka."""
    topic = store.changelog or changelog_topic(application_id, store.name)
    return replace(
        store,
        key=store.key.given(serde_for_topic(store.key.need, topic, is_key=True)),
        value=store.value.given(serde_for_topic(store.value.need, topic, is_key=False)),
    )


def open_store(
    store: StoreBuilder[Any],
    data: StoreData,
    context: StoreContext,
    memory: MutableMapping[str, Any],
) -> Any:
    """Return a store as operations and processors see it.

    Args:
        store: What to open.
        data: Where its entries are.
        context: The task it belongs to.
        memory: What the store remembers besides its entries; saved with the task.
    """
    opener = _OPENERS.get(store.kind)
    if opener is None:
        msg = f"Store {store.name!r} is a {store.kind!r} store, which this engine cannot open."
        raise StateStoreError(msg)
    return opener(store, data, context, memory)


_Opener = Callable[[StoreBuilder[Any], StoreData, StoreContext, MutableMapping[str, Any]], Any]


def _open_key_value(
    store: StoreBuilder[Any],
    data: StoreData,
    context: StoreContext,
    _memory: MutableMapping[str, Any],
) -> KeyValue[Any, Any]:
    return KeyValue(
        store.name,
        store.key.need,
        store.value.need,
        _entries(store, data, context),
        persistent=bool(store.persistent),
    )


def _entries(
    store: StoreBuilder[Any], data: StoreData, context: StoreContext
) -> OrderedMap[bytes, Any]:
    if store.ttl_ms is None:
        return data.map(store)
    return Expiring(data.map(store), store.ttl_ms, lambda: context.stream_time)


def _open_lru_map(
    store: StoreBuilder[Any],
    data: StoreData,
    _context: StoreContext,
    memory: MutableMapping[str, Any],
) -> KeyValue[Any, Any]:
    entries = LeastRecentlyUsed(data.map(store), memory, store.capacity)
    return KeyValue(store.name, store.key.need, store.value.need, entries)


def _open_timestamped_key_value(
    store: StoreBuilder[Any],
    data: StoreData,
    context: StoreContext,
    _memory: MutableMapping[str, Any],
) -> TimestampedKeyValue[Any, Any]:
    arguments = (store.name, store.key.need, store.value.need, _entries(store, data, context))
    persistent = bool(store.persistent)
    if store.caching and context.cache is not None and store.ttl_ms is None:
        return CachedTimestampedKeyValue(*arguments, persistent=persistent, cache=context.cache)
    return TimestampedKeyValue(*arguments, persistent=persistent)


def _open_window(
    store: StoreBuilder[Any],
    data: StoreData,
    context: StoreContext,
    memory: MutableMapping[str, Any],
) -> WindowEntries[Any, Any]:
    by_time = window_by_time if store.time_first else None
    entries = _expiring(store, data, context, memory, by_time=by_time)
    arguments = (store.name, store.key.need, store.value.need, entries, memory)
    options: dict[str, Any] = {
        "size_ms": store.size_ms,
        "timestamped": store.kind == "timestamped_window",
        "retain_duplicates": store.retain_duplicates,
        "time_first": store.time_first,
    }
    # As in Kafka: a cache could only hold one of several values.
    if store.caching and context.cache is not None and not store.retain_duplicates:
        return CachedWindow(*arguments, cache=context.cache, **options)
    return WindowEntries(*arguments, **options)


def _open_session(
    store: StoreBuilder[Any],
    data: StoreData,
    context: StoreContext,
    memory: MutableMapping[str, Any],
) -> SessionEntries[Any, Any]:
    by_time = session_by_time if store.persistent else session_in_memory_by_time
    entries = _expiring(store, data, context, memory, by_time=by_time if store.time_first else None)
    arguments = (store.name, store.key.need, store.value.need, entries)
    if store.caching and context.cache is not None:
        return CachedSession(*arguments, cache=context.cache)
    return SessionEntries(*arguments)


def _expiring(
    store: StoreBuilder[Any],
    data: StoreData,
    context: StoreContext,
    memory: MutableMapping[str, Any],
    *,
    by_time: Callable[[EntryKey], EntryKey] | None,
) -> ExpiringEntries:
    expiry = Expiry(
        store.retention_ms,
        persistent=bool(store.persistent),
        keeps_boundary=bool(store.persistent) and store.time_first and store.kind != "session",
    )
    return ExpiringEntries(
        data.segments(store),
        memory,
        expiry,
        lambda: context.drop(store.name, "expired"),
        by_time=by_time,
    )


def _open_versioned(
    store: StoreBuilder[Any],
    data: StoreData,
    context: StoreContext,
    memory: MutableMapping[str, Any],
) -> Versioned[Any, Any]:
    return Versioned(
        store.name,
        store.key.need,
        store.value.need,
        data.map(store),
        data.segments(store),
        memory,
        retention_ms=store.retention_ms,
        refused=lambda: context.drop(store.name, "expired"),
    )


def _open_unmatched(
    store: StoreBuilder[Any],
    data: StoreData,
    _context: StoreContext,
    memory: MutableMapping[str, Any],
) -> Unmatched[Any]:
    assert store.other_value is not None, f"{store.name} holds the values of two streams"
    return Unmatched(
        store.name,
        store.key.need,
        (store.other_value.need, store.value.need),
        data.map(store),
        memory,
        persistent=bool(store.persistent),
    )


def _open_join_buffer(
    store: StoreBuilder[Any],
    data: StoreData,
    _context: StoreContext,
    memory: MutableMapping[str, Any],
) -> JoinBuffer[Any, Any]:
    return JoinBuffer(
        store.name,
        store.key.need,
        store.value.need,
        data.map(store),
        memory,
        grace_ms=store.retention_ms,
    )


def _open_subscriptions(
    store: StoreBuilder[Any],
    data: StoreData,
    _context: StoreContext,
    _memory: MutableMapping[str, Any],
) -> Subscriptions[Any, Any]:
    return Subscriptions(
        store.name,
        store.key.need,
        store.value.need,
        data.map(store),
        persistent=bool(store.persistent),
    )


def _open_suppress_buffer(
    store: StoreBuilder[Any],
    data: StoreData,
    _context: StoreContext,
    memory: MutableMapping[str, Any],
) -> SuppressBuffer[Any, Any]:
    return SuppressBuffer(
        store.name,
        store.key.need,
        store.value.need,
        data.segments(store),
        memory,
        persistent=bool(store.persistent),
    )


_OPENERS: dict[str, _Opener] = {
    "versioned_key_value": _open_versioned,
    "lru_map": _open_lru_map,
    "unmatched": _open_unmatched,
    "join_buffer": _open_join_buffer,
    "key_value": _open_key_value,
    "timestamped_key_value": _open_timestamped_key_value,
    "window": _open_window,
    "timestamped_window": _open_window,
    "session": _open_session,
    "subscription": _open_subscriptions,
    "suppress_buffer": _open_suppress_buffer,
}
