"""The types of stores that serve one operation each; they are not public."""

from __future__ import annotations

from typing import Any

from headrace.state.join_stores import JoinBuffer, Unmatched
from headrace.state.maps import StoreBackend
from headrace.state.store_times import JoinBufferTimes, StoreTimes, SuppressTimes, UnmatchedTimes
from headrace.state.store_types.base import Prefetch, StoreContext, StoreType
from headrace.state.subscriptions import Subscriptions
from headrace.state.suppress_buffer import SuppressBuffer, prefetch_buffered


class SuppressBufferType(StoreType):
    """The changes of a table that wait to be emitted."""

    times = SuppressTimes

    def open(
        self,
        backend: StoreBackend,
        _context: StoreContext,
        times: SuppressTimes,
        _changelog: None = None,
        /,
    ) -> SuppressBuffer[Any, Any]:
        store, segments = self.store, backend.segments(self.store)
        persistent = bool(store.persistent)
        return SuppressBuffer(
            store.name, store.key.need, store.value.need, segments, times, persistent=persistent
        )

    def prefetch(self, keys: list[bytes], /) -> Prefetch:
        return prefetch_buffered(keys)


class JoinBufferType(StoreType):
    """The records of a stream that wait for a versioned table."""

    times = JoinBufferTimes

    def open(
        self,
        backend: StoreBackend,
        _context: StoreContext,
        times: JoinBufferTimes,
        _changelog: None = None,
        /,
    ) -> JoinBuffer[Any, Any]:
        store, entries = self.store, backend.map(self.store)
        grace_ms = store.retention_ms
        return JoinBuffer(
            store.name, store.key.need, store.value.need, entries, times, grace_ms=grace_ms
        )


class UnmatchedType(StoreType):
    """The records of a left or outer join that found no partner yet."""

    times = UnmatchedTimes

    def open(
        self,
        backend: StoreBackend,
        _context: StoreContext,
        times: UnmatchedTimes,
        _changelog: None = None,
        /,
    ) -> Unmatched[Any]:
        store, entries = self.store, backend.map(self.store)
        assert store.other_value is not None, f"{store.name} holds the values of two streams"
        values = (store.other_value.need, store.value.need)
        persistent = bool(store.persistent)
        return Unmatched(store.name, store.key.need, values, entries, times, persistent=persistent)


class SubscriptionType(StoreType):
    """The left rows of a foreign-key join that point at each right key."""

    def open(
        self,
        backend: StoreBackend,
        _context: StoreContext,
        _times: StoreTimes,
        _changelog: None = None,
        /,
    ) -> Subscriptions[Any, Any]:
        store, entries = self.store, backend.map(self.store)
        persistent = bool(store.persistent)
        return Subscriptions(
            store.name, store.key.need, store.value.need, entries, persistent=persistent
        )
