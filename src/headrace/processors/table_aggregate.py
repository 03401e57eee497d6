"""Fold the rows of each group of a table into one value, also when rows change or leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.processors.aggregate import StoredTable, warn_of_none
from headrace.processors.operation import NodeContext, Process
from headrace.processors.table_forward import IS_LATEST, NOT_PUT, change_emitter
from headrace.records import Headers


@dataclass(frozen=True, kw_only=True)
class TableAggregate(StoredTable):
    """Take the old value of a change out of the aggregate of its group, then put the new one in."""

    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]

    def bind(self, node: NodeContext) -> Process:
        initializer, adder, subtractor = self.initializer, self.adder, self.subtractor
        warn = warn_of_none(node.name)

        def fold(key: Any, new: Any, old: Any, aggregate: Any) -> Any:
            if old is not None and aggregate is not None:
                aggregate = subtractor(key, old, aggregate)
            if new is not None:
                aggregate = adder(key, new, initializer() if aggregate is None else aggregate)
            if aggregate is None and new is not None:
                warn()
            return aggregate

        return _bind_fold(node, self, fold)


@dataclass(frozen=True, kw_only=True)
class TableReduce(StoredTable):
    """Take the old value of a change out of the value of its group, then put the new one in."""

    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]

    def bind(self, node: NodeContext) -> Process:
        adder, subtractor = self.adder, self.subtractor
        warn = warn_of_none(node.name)

        def fold(_key: Any, new: Any, old: Any, aggregate: Any) -> Any:
            if old is not None and aggregate is not None:
                aggregate = subtractor(aggregate, old)
            if new is None:
                return aggregate
            if aggregate is None:
                return new
            aggregate = adder(aggregate, new)
            if aggregate is None:
                warn()
            return aggregate

        return _bind_fold(node, self, fold)


def _bind_fold(
    node: NodeContext, table: StoredTable, fold: Callable[[Any, Any, Any, Any], Any]
) -> Process:
    store = node.store(table.store_name)
    read, write, fail, caching = store.read, store.write, node.fail, store.caching
    sends_old = table.sends_old_values and not caching
    emit = change_emitter(node, store, old_values=table.sends_old_values)

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        new, old, _ = value
        before, time = None, timestamp
        try:
            stored = read(key)
            if stored is None:
                aggregate = fold(key, new, old, None)
            else:
                if sends_old:
                    # The functions may change their argument, so the old value is read again.
                    before = read(key)[0]
                aggregate = fold(key, new, old, stored[0])
                # A deletion that a cache holds back keeps the time of its record, as in Kafka.
                if stored[1] > timestamp and not (caching and aggregate is None):
                    time = stored[1]
            written = write(key, aggregate, time, headers)
        except Exception as error:
            return fail(error, key, new, timestamp, headers)
        if written != NOT_PUT:
            emit(key, aggregate, before, time, headers, written == IS_LATEST)
        return None

    return process
