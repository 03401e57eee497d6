"""Join two streams: records of one key whose times are close.

Each side remembers its records in a window store and looks into the other side's::

    left ──── remember ── join ─┐
                                ├─ merge
    right ─── remember ── join ─┘

Left and outer joins share one more store: the records that found no partner yet. They come out once
no partner can come, when a record at the join's own time passes by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.processors.operation import NodeContext, Operation, Process
from headrace.records import Headers
from headrace.state.join_stores import LEFT
from headrace.windows.join_windows import JoinWindows

Joiner: TypeAlias = Callable[[Any, Any, Any], Any]
"""Joins two values: f(key, left, right)."""

Release: TypeAlias = Callable[[Any, Any, int, Headers], bool]
"""Emits what found no partner, for a record that passes by; returns whether that went well."""


@dataclass(frozen=True)
class RememberForJoin(Operation):
    """Hand each record to its side of the join, then keep it for records of the other side."""

    store_name: str

    stateless = False

    def bind(self, node: NodeContext) -> Process:
        write, forward, fail = node.store(self.store_name).write, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, value, timestamp, headers)
            if key is not None:
                try:
                    write(key, timestamp, value)
                except Exception as error:
                    fail(error, key, value, timestamp, headers)

        return process


@dataclass(frozen=True, kw_only=True)
class StreamStreamJoin(Operation):
    """Join each record of one side with what the other side remembers of its window."""

    side: int
    """`LEFT` or `RIGHT`."""
    joiner: Joiner
    windows: JoinWindows
    other_store: str

    stateless = False

    def bind(self, node: NodeContext) -> Process:
        join, (before, after) = self._from_here(), self._bounds()
        other = node.store(self.other_store)
        scan, value_of = other.scan_key, other.value_of
        forward, fail, drop = node.forward, node.fail, node.drop

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                return drop("null-key" if key is None else "null-value")
            try:
                found = scan(key, timestamp - before, _window_end(timestamp, after))
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            for time, stored in found:
                try:
                    joined = join(key, value, value_of(stored))
                except Exception as error:
                    return fail(error, key, value, timestamp, headers)
                forward(key, joined, time if time > timestamp else timestamp, headers)
            return None

        return process

    def _from_here(self) -> Joiner:
        """Return the joiner as f(key, value of this side, value of the other)."""
        joiner = self.joiner
        return joiner if self.side == LEFT else lambda key, this, other: joiner(key, other, this)

    def _bounds(self) -> tuple[int, int]:
        """Return how much earlier and how much later the other record may be."""
        before, after = self.windows.before_ms, self.windows.after_ms
        return (before, after) if self.side == LEFT else (after, before)


@dataclass(frozen=True, kw_only=True)
class OuterStreamStreamJoin(StreamStreamJoin):
    """One side of a left or outer join: also emits records that found no partner."""

    unmatched_store: str
    keeps_unmatched: bool
    """Whether records of this side come out without a partner."""
    other_keeps_unmatched: bool

    def bind(self, node: NodeContext) -> Process:
        join, (before, after), side = self._from_here(), self._bounds(), self.side
        other, unmatched = node.store(self.other_store), node.store(self.unmatched_store)
        scan, value_of, release = other.scan_key, other.value_of, self._releaser(node)
        forward, fail, drop = node.forward, node.fail, node.drop
        keeps, removes, wait = (
            self.keeps_unmatched,
            self.other_keeps_unmatched,
            after + self.windows.grace_ms,
        )

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp > unmatched.stream_time:
                unmatched.advance(timestamp)
            if value is None or (key is None and not keeps):
                return drop("null-key" if key is None else "null-value")
            if key is None:
                return alone(key, value, timestamp, headers)
            if (
                timestamp == unmatched.stream_time
                # Kafka looks only if the wait of this side has passed, whichever side waits.
                and unmatched.earliest + wait < timestamp
                and not release(key, value, timestamp, headers)
            ):
                return None
            last, matched = _window_end(timestamp, after), False
            try:
                found = scan(key, timestamp - before, last)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            for time, stored in found:
                matched = True
                if removes:
                    unmatched.remove(1 - side, key, time)
                try:
                    joined = join(key, value, value_of(stored))
                except Exception as error:
                    return fail(error, key, value, timestamp, headers)
                forward(key, joined, time if time > timestamp else timestamp, headers)
            if matched or not keeps:
                return None
            if last < unmatched.stream_time:
                return alone(key, value, timestamp, headers)
            try:
                unmatched.add(side, key, value, timestamp)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return None

        def alone(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                joined = join(key, value, None)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return forward(key, joined, timestamp, headers)

        return process

    def _releaser(self, node: NodeContext) -> Release:
        joiner, forward, fail = self.joiner, node.forward, node.fail
        unmatched = node.store(self.unmatched_store)
        left_wait = self.windows.after_ms + self.windows.grace_ms
        right_wait = self.windows.before_ms + self.windows.grace_ms

        def release(key: Any, value: Any, timestamp: int, headers: Headers) -> bool:
            closed = unmatched.closed(timestamp - left_wait, timestamp - right_wait)
            unmatched.look(timestamp - left_wait, timestamp - right_wait)
            emitted = None
            for record in closed:
                try:
                    if record.side == LEFT:
                        joined = joiner(record.key, record.value, None)
                    else:
                        joined = joiner(record.key, None, record.value)
                except Exception as error:
                    unmatched.set_earliest(record.timestamp)
                    fail(error, key, value, timestamp, headers)
                    return False
                forward(record.key, joined, record.timestamp, headers)
                # Kafka forgets a record once the next one is out: after a failure it comes again.
                if emitted is not None and emitted != record.place:
                    unmatched.forget(emitted)
                emitted = record.place
            if emitted is not None:
                unmatched.forget(emitted)
            return True

        return release


@dataclass(frozen=True, kw_only=True)
class SelfJoin(Operation):
    """Join a stream with itself on one store: each record with those before, and with itself."""

    joiner: Joiner
    windows: JoinWindows
    store_name: str

    stateless = False

    def bind(self, node: NodeContext) -> Process:
        joiner, retention = self.joiner, self.windows.retention_ms
        before, after = self.windows.before_ms, self.windows.after_ms
        store, memory = node.store(self.store_name), node.memory
        scan, value_of = store.scan_key, store.value_of
        forward, fail, drop = node.forward, node.fail, node.drop
        stream_time: int = memory.get("stream_time", -1)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal stream_time
            if key is None or value is None:
                return drop("null-key" if key is None else "null-value")
            if timestamp > stream_time:
                stream_time = memory["stream_time"] = timestamp
            try:
                with_itself = joiner(key, value, value)
                rights = scan(key, timestamp - before, _window_end(timestamp, after))
                lefts = scan(key, timestamp - after, _window_end(timestamp, before))
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            for time, stored in rights:
                try:
                    joined = joiner(key, value, value_of(stored))
                except Exception as error:
                    return fail(error, key, value, timestamp, headers)
                forward(key, joined, time if time > timestamp else timestamp, headers)
            due = timestamp > stream_time - retention + 1
            for time, stored in lefts:
                # Its own result comes where its time puts it.
                if due and time > timestamp:
                    due = False
                    forward(key, with_itself, timestamp, headers)
                try:
                    joined = joiner(key, value_of(stored), value)
                except Exception as error:
                    return fail(error, key, value, timestamp, headers)
                forward(key, joined, time if time > timestamp else timestamp, headers)
            if due:
                forward(key, with_itself, timestamp, headers)
            return None

        return process


def _window_end(timestamp: int, after: int) -> int:
    """Return the last time of a window; Kafka's end at zero or later, even if `after` is negative."""
    return timestamp + after if timestamp + after > 0 else 0

