"""Fold the records of each key into one value."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import RecordError
from headrace.processors.operation import NodeContext, Process, TableOperation, ValueGetter
from headrace.processors.table_forward import IS_LATEST, NOT_PUT, change_emitter, store_getter
from headrace.records import Headers

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StoredTable(TableOperation):
    """An operation that keeps its table in a store of its own."""

    store_name: str = ""
    """The store that holds the table; never None."""

    stateless = False

    def sending_old_values(
        self, parent_sends: Callable[[], bool], *, materialize: bool
    ) -> TableOperation | None:
        return replace(self, sends_old_values=True)

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        return store_getter(node, self.store_name)


@dataclass(frozen=True, kw_only=True)
class Aggregate(StoredTable):
    """Fold each record into the aggregate of its key."""

    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    reducer: Callable[[Any, Any], Any] | None = None
    """The function that ``aggregator`` calls if an aggregate exists; the fast path calls it."""

    def bind(self, node: NodeContext) -> Process:
        initializer, aggregator = self.initializer, self.aggregator
        store = node.store(self.store_name)
        encode, read, write = store.serialize_key, store.read_at, store.write_at
        fail, drop = node.fail, node.drop
        caching = store.caching
        sends_old = self.sends_old_values and not caching
        emit = change_emitter(node, store, old_values=self.sends_old_values)
        warn = warn_of_none(node.name)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                # Kafka Streams drops these: a null key has no partition to aggregate in.
                return drop("null-key" if key is None else "null-value")
            latest = timestamp
            try:
                encoded = encode(key)
                stored = read(encoded, key)
                if stored is None:
                    old = initializer() if sends_old else None
                    new = aggregator(key, value, initializer())
                else:
                    aggregate, stored_time = stored
                    # The aggregator may change its argument, so the old value is read again.
                    old = read(encoded, key)[0] if sends_old else None
                    new = aggregator(key, value, aggregate)
                    if stored_time > timestamp:
                        latest = stored_time
                if new is None:
                    warn()
                    # As in Kafka, a cache gives a deletion the time of the record that made it.
                    latest = timestamp if caching else latest
                    written = write(encoded, key, None, latest, headers)
                else:
                    written = write(encoded, key, new, latest, headers)
            except RecordError:
                raise  # of a child, as the cache made room: the handler has decided already
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            if caching or written == NOT_PUT:
                return None
            return emit(key, new, old, latest, headers, written == IS_LATEST)

        return self._updating_cached_entries(node, store, process) if caching else process

    def _updating_cached_entries(
        self, node: NodeContext, store: Any, otherwise: Process
    ) -> Process:
        """Return ``otherwise`` with a short way for keys whose aggregate the cache holds."""
        aggregator, reducer = self.aggregator, self.reducer
        fail, warn = node.fail, warn_of_none(node.name)
        encode, cached_at, hold_again = store.serialize_key, store.cached_at, store.hold_again
        load = store.load

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                return otherwise(key, value, timestamp, headers)
            try:
                encoded = encode(key)
                entry = cached_at(encoded) or load(encoded, key)
                if entry is None or entry.value is None:
                    return otherwise(key, value, timestamp, headers)
                if reducer is None:
                    new = aggregator(key, value, entry.value)
                else:
                    new = reducer(entry.value, value)
                if new is None:
                    warn()
                    hold_again(encoded, entry, None, timestamp, headers)
                else:
                    hold_again(encoded, entry, new, max(timestamp, entry.timestamp), headers)
            except RecordError:
                raise  # of a child, as the cache made room: the handler has decided already
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return None

        return process


def zero() -> int:
    """Return the first count."""
    return 0


def add_one(_key: Any, _value: Any, count: int) -> int:
    """Count one more record."""
    return count + 1


def add_counts(_key: Any, count: int, other: int) -> int:
    """Count the records of two sessions."""
    return count + other


def nothing() -> None:
    """Return the aggregate of a reduction before its first value."""


def reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return an aggregator that combines values; the first one starts it."""
    return lambda _key, value, aggregate: value if aggregate is None else reducer(aggregate, value)


def merging(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return a merger of sessions whose values are combined."""
    return lambda _key, aggregate, other: other if aggregate is None else reducer(aggregate, other)


def warn_of_none(node: str) -> Callable[[], None]:
    """Return a function that asks once whether an aggregator forgot to return."""
    warned = False

    def warn() -> None:
        nonlocal warned
        if not warned:
            warned = True
            _log.warning(
                "The aggregator of step %r returned None, which deletes the entry: "
                "forgot `return`? Annotate it `-> … | None` if that is meant.",
                node,
            )

    return warn
