"""Join a stream with a table: each record with the value that the table has for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.processors.operation import NodeContext, Operation, Process
from headrace.records import Headers

Joiner: TypeAlias = Callable[[Any, Any, Any], Any]
"""Joins two values: f(key, value, value of the table)."""


@dataclass(frozen=True, kw_only=True)
class StreamTableJoin(Operation):
    """Join each record with the table's value of its key; a versioned table's at its time."""

    table: str
    """The node of the table."""
    joiner: Joiner
    left: bool
    """Whether records without a partner are joined with None."""

    stateless = False

    def bind(self, node: NodeContext) -> Process:
        joiner, left, getter = self.joiner, self.left, node.getter(self.table)
        get, as_of = getter.get, getter.as_of
        forward, fail, drop = node.forward, node.fail, node.drop

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                return drop("null-key" if key is None else "null-value")
            try:
                if key is None:
                    stored = None
                else:
                    stored = get(key) if as_of is None else as_of(key, timestamp)
                if stored is None and not left:
                    return None
                joined = joiner(key, value, None if stored is None else stored[0])
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return forward(key, joined, timestamp, headers)

        return process


@dataclass(frozen=True, kw_only=True)
class StreamTableJoinWithGrace(StreamTableJoin):
    """Buffer each record for the grace period, then join it with the versioned table."""

    buffer: str
    """The store in which records wait."""

    def bind(self, node: NodeContext) -> Process:
        left, joiner, as_of = self.left, self.joiner, node.getter(self.table).as_of
        assert as_of is not None, "checked when the join was added"
        buffer, forward, fail, drop = node.store(self.buffer), node.forward, node.fail, node.drop

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                return drop("null-key" if key is None else "null-value")
            current = node.record
            try:
                if buffer.put(key, value, timestamp, headers, current):
                    waited = buffer.due()
                else:
                    waited = [(key, value, timestamp, headers, current, None)]
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            for due_key, due_value, due_time, due_headers, origin, buffer_key in waited:
                try:
                    stored = as_of(due_key, due_time)
                    if stored is not None or left:
                        joined = joiner(due_key, due_value, None if stored is None else stored[0])
                except Exception as error:
                    # As in Kafka, the record stays in the buffer, and the next record retries it.
                    return fail(error, key, value, timestamp, headers)
                if stored is not None or left:
                    node.record = origin
                    try:
                        forward(due_key, joined, due_time, due_headers)
                    finally:
                        node.record = current
                if buffer_key is not None:
                    buffer.forget(buffer_key)
            return None

        return process


@dataclass(frozen=True, kw_only=True)
class StreamGlobalTableJoin(Operation):
    """Join each record with the global table's value of the key that it points to."""

    store_name: str
    key_of: Callable[[Any, Any], Any]
    joiner: Joiner
    left: bool
    """Whether records without a partner are joined with None."""

    stateless = False
    looks_up_global_stores = True

    def bind(self, node: NodeContext) -> Process:
        key_of, joiner, left = self.key_of, self.joiner, self.left
        read, forward = node.store(self.store_name).read, node.forward
        fail, drop = node.fail, node.drop

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                # Kafka asks for the key even where there is no value.
                table_key = key_of(key, value)
                if value is None or (table_key is None and not left):
                    return drop("null-value" if value is None else "null-key")
                stored = None if table_key is None else read(table_key)
                if stored is None and not left:
                    return None
                joined = joiner(key, value, None if stored is None else stored[0])
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return forward(key, joined, timestamp, headers)

        return process
