"""The types of stores that serve one operation each; they are not public."""

from __future__ import annotations

from typing import Any

from headrace.state.join_stores import JoinBuffer, Unmatched
from headrace.state.store_times import JoinBufferTimes, SuppressTimes, UnmatchedTimes
from headrace.state.store_types.base import Opening, Prefetch, StoreType
from headrace.state.subscriptions import Subscriptions
from headrace.state.suppress_buffer import SuppressBuffer, prefetch_buffered


class SuppressBufferType(StoreType):
    """The changes of a table that wait to be emitted."""

    kind = "suppress_buffer"
    times = SuppressTimes

    def open(self, opening: Opening) -> SuppressBuffer[Any, Any]:
        segments = opening.backend.segments(self.store)
        return SuppressBuffer(*self.arguments, segments, opening.times, persistent=self.persistent)

    def prefetch(self, keys: list[bytes], /) -> Prefetch:
        return prefetch_buffered(keys)


class JoinBufferType(StoreType):
    """The records of a stream that wait for a versioned table."""

    kind = "join_buffer"
    times = JoinBufferTimes

    def open(self, opening: Opening) -> JoinBuffer[Any, Any]:
        entries, grace_ms = opening.backend.map(self.store), self.store.retention_ms
        return JoinBuffer(*self.arguments, entries, opening.times, grace_ms=grace_ms)


class UnmatchedType(StoreType):
    """The records of a left or outer join that found no partner yet."""

    kind = "unmatched"
    times = UnmatchedTimes

    def open(self, opening: Opening) -> Unmatched[Any]:
        name, key, left = self.arguments
        assert self.store.other_value is not None, f"{name} holds the values of two streams"
        values, entries = (self.store.other_value.need, left), opening.backend.map(self.store)
        return Unmatched(name, key, values, entries, opening.times, persistent=self.persistent)


class SubscriptionType(StoreType):
    """The left rows of a foreign-key join that point at each right key."""

    kind = "subscription"

    def open(self, opening: Opening) -> Subscriptions[Any, Any]:
        entries = opening.backend.map(self.store)
        return Subscriptions(*self.arguments, entries, persistent=self.persistent)
