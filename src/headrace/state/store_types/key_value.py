"""The types of key-value stores: plain, with timestamps, and the LRU map."""

from __future__ import annotations

from typing import Any

from headrace.state.cache import CachedTimestampedKeyValue
from headrace.state.changelog import Changelog, LoggedMap
from headrace.state.key_value import KeyValue, TimestampedKeyValue
from headrace.state.lru_and_ttl import LeastRecentlyUsed, TtlMap, prefetch_both_orders
from headrace.state.maps import OrderedMap, StoreBackend
from headrace.state.store_times import LruTimes
from headrace.state.store_types.base import LoggedStoreType, Prefetch, StoreContext


class KeyValueType(LoggedStoreType):
    """One value per key. With a `ttl` the engine's map has an order by expiry; a reader's not."""

    def open(
        self,
        backend: StoreBackend,
        context: StoreContext,
        _times: Any,
        changelog: Changelog | None = None,
        /,
    ) -> Any:
        return self._over(self._entries(backend, context, changelog))

    def open_for_reading(self, backend: StoreBackend, _times: Any, /) -> Any:
        return self._over(backend.map(self.store))

    def prefetch(self, keys: list[bytes], /) -> Prefetch | None:
        return None if self.store.ttl_ms is None else prefetch_both_orders(keys)

    def _over(self, entries: OrderedMap[bytes, Any]) -> Any:
        store = self.store
        persistent = bool(store.persistent)
        return KeyValue(
            store.name, store.key.need, store.value.need, entries, persistent=persistent
        )

    def _entries(
        self, backend: StoreBackend, context: StoreContext, changelog: Changelog | None
    ) -> OrderedMap[bytes, Any]:
        entries: Any = backend.map(self.store)
        if self.store.ttl_ms is not None:
            entries = TtlMap(entries, self.store.ttl_ms, lambda: context.stream_time)
            if changelog is not None:
                entries.forgotten = changelog.delete
                changelog.remove_expired = entries.remove_expired
        return entries if changelog is None else LoggedMap(entries, changelog)


class TimestampedKeyValueType(KeyValueType):
    """One value and its timestamp per key."""

    has_timestamps = True

    def open(
        self,
        backend: StoreBackend,
        context: StoreContext,
        _times: Any,
        changelog: Changelog | None = None,
        /,
    ) -> Any:
        store, cache = self.store, context.cache
        entries = self._entries(backend, context, changelog)
        if not store.caching or cache is None or store.ttl_ms is not None:
            return self._over(entries)
        return CachedTimestampedKeyValue(
            store.name,
            store.key.need,
            store.value.need,
            entries,
            persistent=bool(store.persistent),
            cache=cache,
        )

    def _over(self, entries: OrderedMap[bytes, Any]) -> Any:
        store = self.store
        persistent = bool(store.persistent)
        return TimestampedKeyValue(
            store.name, store.key.need, store.value.need, entries, persistent=persistent
        )


class LruMapType(KeyValueType):
    """The values of the keys used last. A reader has a plain map, so its reads move nothing."""

    times = LruTimes

    def open(
        self,
        backend: StoreBackend,
        _context: StoreContext,
        times: LruTimes,
        changelog: Changelog | None = None,
        /,
    ) -> Any:
        entries = LeastRecentlyUsed(backend.map(self.store), times, self.store.capacity)
        if changelog is None or self.store.capacity == 0:
            return self._over(entries)
        entries.forgotten = changelog.delete
        return self._over(LoggedMap(entries, changelog))

    def prefetch(self, keys: list[bytes], /) -> Prefetch:
        return prefetch_both_orders(keys)
