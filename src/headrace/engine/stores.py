"""Open the stores of a task over the maps its runtime brings."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from headrace.engine.changelog import Changelog, LoggedEntries, LoggedMap
from headrace.errors import StateStoreError
from headrace.serdes.base import serde_for_topic
from headrace.state.cache import CacheBudget, CachedTimestampedKeyValue
from headrace.state.cached_windows import CachedSession, CachedWindow
from headrace.state.join_stores import JoinBuffer, Unmatched
from headrace.state.key_value import KeyValue, TimestampedKeyValue
from headrace.state.lru_and_ttl import LeastRecentlyUsed, TtlMap
from headrace.state.maps import MemoryMap, MemorySegments, OrderedMap, SegmentedMap
from headrace.state.segmented_entries import EntryKey, ExpiringEntries, Expiry
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


class StoreBackend(Protocol):
    """Holds what the stores of one task hold; each runtime brings its own."""

    def map(self, store: StoreBuilder[Any], /) -> OrderedMap[Any, Any]:
        """Return the map of a store without segments."""
        ...

    def segments(self, store: StoreBuilder[Any], /) -> SegmentedMap[Any, Any]:
        """Return the map of a store whose entries expire."""
        ...


class MemoryStores:
    """A `StoreBackend` in memory; it outlives the task that fills it."""

    def __init__(self) -> None:
        self._maps: dict[str, MemoryMap[Any, Any]] = {}
        self._segments: dict[str, MemorySegments[Any, Any]] = {}

    def map(self, store: StoreBuilder[Any], /) -> MemoryMap[Any, Any]:
        return self._maps.setdefault(store.name, MemoryMap())

    def segments(self, store: StoreBuilder[Any], /) -> MemorySegments[Any, Any]:
        return self._segments.setdefault(store.name, MemorySegments())


class StoreContext(Protocol):
    """What a store may ask of the task it belongs to."""

    cache: CacheBudget | None
    """The memory for held-back writes, or None if they go straight through."""

    stream_time: int
    """The task's stream time."""

    def drop(self, store: str, reason: str, /) -> None:
        """Count a write that a store refused."""
        ...


def bound_to(store: StoreBuilder[Any], topic: str) -> StoreBuilder[Any]:
    """Return a store whose serdes know the topic they write for: its changelog, as in Kafka."""
    return replace(
        store,
        key=store.key.given(serde_for_topic(store.key.need, topic, is_key=True)),
        value=store.value.given(serde_for_topic(store.value.need, topic, is_key=False)),
    )


def open_store(
    store: StoreBuilder[Any],
    data: StoreBackend,
    context: StoreContext,
    memory: MutableMapping[str, Any],
    changelog: Changelog | None = None,
) -> Any:
    """Return a store as operations and processors see it.

    Args:
        store: What to open.
        data: Where its entries are.
        context: The task it belongs to.
        memory: What the store remembers besides its entries; saved with the task.
        changelog: Where its changes are noted; None if nobody asks for them.
    """
    opener = _OPENERS.get(store.kind)
    if opener is None:
        msg = f"Store {store.name!r} is a {store.kind!r} store, which this engine cannot open."
        raise StateStoreError(msg)
    return opener(_Opening(store, data, context, memory, changelog))


class _Opening(NamedTuple):
    """A store to open, and what it is opened with: see `open_store`."""

    store: StoreBuilder[Any]
    data: StoreBackend
    context: StoreContext
    memory: MutableMapping[str, Any]
    changelog: Changelog | None

    def map(self) -> OrderedMap[Any, Any]:
        """Return the map of the store, without a changelog."""
        return self.data.map(self.store)

    def segments(self) -> SegmentedMap[Any, Any]:
        """Return the segments of the store, without a changelog."""
        return self.data.segments(self.store)


_Opener = Callable[[_Opening], Any]


def _open_key_value(opening: _Opening) -> KeyValue[Any, Any]:
    store = opening.store
    return KeyValue(
        store.name,
        store.key.need,
        store.value.need,
        _entries(opening),
        persistent=bool(store.persistent),
    )


def _entries(opening: _Opening) -> OrderedMap[bytes, Any]:
    store, changelog = opening.store, opening.changelog
    if store.ttl_ms is None:
        return opening.map() if changelog is None else LoggedMap(opening.map(), changelog)
    context = opening.context
    expiring = TtlMap(opening.map(), store.ttl_ms, lambda: context.stream_time)
    if changelog is None:
        return expiring
    expiring.forgotten = changelog.delete
    changelog.settle = expiring.remove_expired
    return LoggedMap(expiring, changelog)


def _open_lru_map(opening: _Opening) -> KeyValue[Any, Any]:
    store, changelog = opening.store, opening.changelog
    entries = LeastRecentlyUsed(opening.map(), opening.memory, store.capacity)
    if changelog is None or store.capacity == 0:
        return KeyValue(store.name, store.key.need, store.value.need, entries)
    entries.forgotten = changelog.delete
    logged = LoggedMap(entries, changelog)
    return KeyValue(store.name, store.key.need, store.value.need, logged)


def _open_timestamped_key_value(opening: _Opening) -> TimestampedKeyValue[Any, Any]:
    store, cache = opening.store, opening.context.cache
    arguments = (store.name, store.key.need, store.value.need, _entries(opening))
    persistent = bool(store.persistent)
    if store.caching and cache is not None and store.ttl_ms is None:
        return CachedTimestampedKeyValue(*arguments, persistent=persistent, cache=cache)
    return TimestampedKeyValue(*arguments, persistent=persistent)


def _open_window(opening: _Opening) -> WindowEntries[Any, Any]:
    store, cache = opening.store, opening.context.cache
    entries = _expiring(opening, by_time=window_by_time if store.time_first else None)
    arguments = (store.name, store.key.need, store.value.need, entries, opening.memory)
    options: dict[str, Any] = {
        "size_ms": store.size_ms,
        "timestamped": store.kind == "timestamped_window",
        "retain_duplicates": store.retain_duplicates,
        "time_first": store.time_first,
    }
    # As in Kafka: a cache could only hold one of several values.
    if store.caching and cache is not None and not store.retain_duplicates:
        return CachedWindow(*arguments, cache=cache, **options)
    return WindowEntries(*arguments, **options)


def _open_session(opening: _Opening) -> SessionEntries[Any, Any]:
    store, cache = opening.store, opening.context.cache
    by_time = session_by_time if store.persistent else session_in_memory_by_time
    entries = _expiring(opening, by_time=by_time if store.time_first else None)
    arguments = (store.name, store.key.need, store.value.need, entries)
    if store.caching and cache is not None:
        return CachedSession(*arguments, cache=cache)
    return SessionEntries(*arguments)


def _expiring(
    opening: _Opening, *, by_time: Callable[[EntryKey], EntryKey] | None
) -> ExpiringEntries:
    store, context = opening.store, opening.context
    expiry = Expiry(
        store.retention_ms,
        persistent=bool(store.persistent),
        keeps_boundary=bool(store.persistent) and store.time_first and store.kind != "session",
    )
    arguments = (
        opening.segments(),
        opening.memory,
        expiry,
        lambda: context.drop(store.name, "expired"),
    )
    if opening.changelog is None:
        return ExpiringEntries(*arguments, by_time=by_time)
    return LoggedEntries(*arguments, by_time=by_time, changelog=opening.changelog)


def _open_versioned(opening: _Opening) -> Versioned[Any, Any]:
    store, context, changelog = opening.store, opening.context, opening.changelog
    return Versioned(
        store.name,
        store.key.need,
        store.value.need,
        opening.map(),
        opening.segments(),
        opening.memory,
        retention_ms=store.retention_ms,
        refused=lambda: context.drop(store.name, "expired"),
        accepted=None if changelog is None else changelog.add_version,
    )


def _open_unmatched(opening: _Opening) -> Unmatched[Any]:
    store = opening.store
    assert store.other_value is not None, f"{store.name} holds the values of two streams"
    return Unmatched(
        store.name,
        store.key.need,
        (store.other_value.need, store.value.need),
        opening.map(),
        opening.memory,
        persistent=bool(store.persistent),
    )


def _open_join_buffer(opening: _Opening) -> JoinBuffer[Any, Any]:
    store = opening.store
    return JoinBuffer(
        store.name,
        store.key.need,
        store.value.need,
        opening.map(),
        opening.memory,
        grace_ms=store.retention_ms,
    )


def _open_subscriptions(opening: _Opening) -> Subscriptions[Any, Any]:
    store = opening.store
    return Subscriptions(
        store.name,
        store.key.need,
        store.value.need,
        opening.map(),
        persistent=bool(store.persistent),
    )


def _open_suppress_buffer(opening: _Opening) -> SuppressBuffer[Any, Any]:
    store = opening.store
    return SuppressBuffer(
        store.name,
        store.key.need,
        store.value.need,
        opening.segments(),
        opening.memory,
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
