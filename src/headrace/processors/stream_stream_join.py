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
from headrace.state.join_stores import LEFT, RIGHT
from headrace.windows.join_windows import JoinWindows

Joiner: TypeAlias = Callable[[Any, Any, Any], Any]
"""Joins two values: f(key, left, right)."""

Attempt: TypeAlias = Callable[[Any, Any, int, Headers], bool]
"""Handles a record as `Process` does, and returns how that went."""


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
        match, drop = self._matcher(node), node.drop

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                return drop("null-key" if key is None else "null-value")
            match(key, value, timestamp, headers)
            return None

        return process

    def _matcher(
        self, node: NodeContext, found_partner: Callable[[Any, int], None] | None = None
    ) -> Attempt:
        """Return what joins a record with its partners, and says whether the record is done with.

        ``found_partner`` is called with the key and the time of each partner.
        """
        join, (before, after) = self._from_here(), self._bounds()
        other = node.store(self.other_store)
        scan, value_of = other.scan_key, other.value_of
        forward, fail = node.forward, node.fail

        def match(key: Any, value: Any, timestamp: int, headers: Headers) -> bool:
            matched = False
            try:
                partners = scan(key, timestamp - before, _window_end(timestamp, after))
            except Exception as error:
                fail(error, key, value, timestamp, headers)
                return True
            for time, stored in partners:
                matched = True
                if found_partner is not None:
                    found_partner(key, time)
                try:
                    joined = join(key, value, value_of(stored))
                except Exception as error:
                    fail(error, key, value, timestamp, headers)
                    return True
                forward(key, joined, time if time > timestamp else timestamp, headers)
            return matched

        return match

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
        unmatched, other_side = node.store(self.unmatched_store), 1 - self.side
        keep, release, drop = self._keeper(node), self._releaser(node), node.drop
        keeps, wait = self.keeps_unmatched, self._bounds()[1] + self.windows.grace_ms

        def found_partner(key: Any, time: int) -> None:
            unmatched.remove(other_side, key, time)

        match = self._matcher(node, found_partner if self.other_keeps_unmatched else None)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp > unmatched.stream_time:
                unmatched.advance(timestamp)
            if value is None or (key is None and not keeps):
                return drop("null-key" if key is None else "null-value")
            if key is None:
                return keep(key, value, timestamp, headers)
            if (
                timestamp == unmatched.stream_time
                # Kafka looks only if the wait of this side has passed, whichever side waits.
                and unmatched.earliest + wait < timestamp
                and not release(key, value, timestamp, headers)
            ):
                return None
            if not match(key, value, timestamp, headers) and keeps:
                keep(key, value, timestamp, headers)
            return None

        return process

    def _keeper(self, node: NodeContext) -> Process:
        """Return what holds a record without a partner back, or emits it if none can come."""
        join, after, side = self._from_here(), self._bounds()[1], self.side
        unmatched, forward, fail = node.store(self.unmatched_store), node.forward, node.fail

        def keep(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if key is not None and _window_end(timestamp, after) >= unmatched.stream_time:
                    unmatched.add(side, key, value, timestamp)
                    return None
                joined = join(key, value, None)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return forward(key, joined, timestamp, headers)

        return keep

    def _releaser(self, node: NodeContext) -> Attempt:
        """Return what emits the records whose windows closed, and says whether that went well."""
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
                if emitted is not None and emitted != record.entry_key:
                    unmatched.forget(emitted)
                emitted = record.entry_key
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
        joiner, retention, partners = self.joiner, self.windows.retention_ms, self._partners(node)
        times, value_of = node.times, node.store(self.store_name).value_of
        forward, fail, drop = node.forward, node.fail, node.drop
        stream_time: int = times.get("stream_time", -1)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal stream_time
            if key is None or value is None:
                return drop("null-key" if key is None else "null-value")
            try:
                with_itself = joiner(key, value, value)
                matches = partners(key, timestamp)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            if timestamp > stream_time:
                stream_time = times["stream_time"] = timestamp
            due = timestamp > stream_time - retention + 1
            for side, time, stored in matches:
                # Its own result comes where its time puts it.
                if due and side == LEFT and time > timestamp:
                    due = False
                    forward(key, with_itself, timestamp, headers)
                try:
                    pair = (value_of(stored), value) if side == LEFT else (value, value_of(stored))
                    joined = joiner(key, *pair)
                except Exception as error:
                    return fail(error, key, value, timestamp, headers)
                forward(key, joined, time if time > timestamp else timestamp, headers)
            if due:
                forward(key, with_itself, timestamp, headers)
            return None

        return process

    def _partners(self, node: NodeContext) -> Callable[[Any, int], list[tuple[int, int, Any]]]:
        """Return what finds the partners of a record: side, time, stored; first the right ones."""
        scan = node.store(self.store_name).scan_key
        before, after = self.windows.before_ms, self.windows.after_ms

        def partners(key: Any, timestamp: int) -> list[tuple[int, int, Any]]:
            rights = scan(key, timestamp - before, _window_end(timestamp, after))
            lefts = scan(key, timestamp - after, _window_end(timestamp, before))
            return [(RIGHT, *right) for right in rights] + [(LEFT, *left) for left in lefts]

        return partners


def _window_end(timestamp: int, after: int) -> int:
    """Return the last time of a window: in Kafka never before zero, even if `after` is negative."""
    return timestamp + after if timestamp + after > 0 else 0
