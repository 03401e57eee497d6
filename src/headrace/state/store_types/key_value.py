"""The types of key-value stores: plain, with timestamps, and the LRU map."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.state.cache import CachedTimestampedKeyValue
from headrace.state.changelog import LoggedMap
from headrace.state.key_value import KeyValue, TimestampedKeyValue
from headrace.state.lru_and_ttl import LeastRecentlyUsed, TtlMap, prefetch_both_orders
from headrace.state.maps import OrderedMap, StoreBackend
from headrace.state.store_times import LruTimes, StoreTimes
from headrace.state.store_types.base import LoggedStoreType, Opening, Prefetch, StoreKind


class KeyValueType(LoggedStoreType):
    """One value per key. With a `ttl` the map has an order by expiry too; a reader's has not."""

    kind: ClassVar[StoreKind] = "key_value"
    opens: ClassVar[type[Any]] = KeyValue

    def open(self, opening: Opening) -> Any:
        return self._over(self._entries(opening))

    def open_for_reading(self, backend: StoreBackend, _times: StoreTimes, /) -> Any:
        return self._over(backend.map(self.store))

    def prefetch(self, keys: list[bytes], /) -> Prefetch | None:
        return None if self.store.ttl_ms is None else prefetch_both_orders(keys)

    def _over(self, entries: OrderedMap[bytes, Any]) -> Any:
        return self.opens(*self.arguments, entries, persistent=self.persistent)

    def _entries(self, opening: Opening) -> OrderedMap[bytes, Any]:
        entries, changelog = opening.backend.map(self.store), opening.changelog
        if self.store.ttl_ms is not None:
            context = opening.context
            entries = TtlMap(entries, self.store.ttl_ms, lambda: context.stream_time)
            if changelog is not None:
                entries.forgotten = changelog.delete
                changelog.remove_expired = entries.remove_expired
        return entries if changelog is None else LoggedMap(entries, changelog)


class TimestampedKeyValueType(KeyValueType):
    """One value and its timestamp per key."""

    kind = "timestamped_key_value"
    has_timestamps = True
    opens = TimestampedKeyValue

    def open(self, opening: Opening) -> Any:
        cache, entries = opening.context.cache, self._entries(opening)
        if not self.store.caching or cache is None or self.store.ttl_ms is not None:
            return self._over(entries)
        persistent = self.persistent
        return CachedTimestampedKeyValue(
            *self.arguments, entries, persistent=persistent, cache=cache
        )


class LruMapType(KeyValueType):
    """The values of the keys used last. A reader has a plain map, so its reads move nothing."""

    kind = "lru_map"
    times = LruTimes

    def prefetch(self, keys: list[bytes], /) -> Prefetch:
        return prefetch_both_orders(keys)

    def _entries(self, opening: Opening) -> OrderedMap[bytes, Any]:
        entries, changelog = opening.backend.map(self.store), opening.changelog
        used = LeastRecentlyUsed(entries, opening.times, self.store.capacity)
        if changelog is None or self.store.capacity == 0:
            return used
        used.forgotten = changelog.delete
        return LoggedMap(used, changelog)
