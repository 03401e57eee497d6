"""Read a topic, or a stream, as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headrace.processors.operation import NodeContext, Process, TableOperation, ValueGetter
from headrace.processors.table_forward import IS_LATEST, NOT_PUT, change_emitter, store_getter
from headrace.records import Headers


@dataclass(frozen=True, kw_only=True)
class TableSource(TableOperation):
    """Keep the last value per key. Without a store, only pass changes on."""

    lazy_store: str
    """The store to use once something needs it."""

    stateless = False
    reads_topic_as_table = True

    def sending_old_values(
        self, parent_sends: Callable[[], bool], *, materialize: bool
    ) -> TableOperation | None:
        if self.store_name is None and not materialize:
            return None
        return replace(self, sends_old_values=True, store_name=self.lazy_store)

    def materialized(self) -> TableOperation:
        return replace(self, store_name=self.lazy_store)

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        return store_getter(node, self.lazy_store)

    def bind(self, node: NodeContext) -> Process:
        if self.store_name is None:
            return _bind_without_store(node)
        store = node.store(self.store_name)
        write, drop = store.write, node.drop
        read = store.read if self.sends_old_values else _unread
        emit = change_emitter(node, store, old_values=self.sends_old_values)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                return drop("null-key")
            stored = read(key)
            written = write(key, value, timestamp, headers)
            if written != NOT_PUT:
                old = None if stored is None else stored[0]
                emit(key, value, old, timestamp, headers, written == IS_LATEST)
            return None

        return process


def _unread(_key: Any) -> None:
    """Return no old value: no operation downstream needs it."""


def _bind_without_store(node: NodeContext) -> Process:
    forward, drop = node.forward, node.drop

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            return drop("null-key")
        return forward(key, (value, None, True), timestamp, headers)

    return process


@dataclass(frozen=True)
class GlobalTableSource(TableSource):
    """Keep the last value per key of a global table; nothing is downstream."""

    def bind(self, node: NodeContext) -> Process:
        write, drop = node.store(self.lazy_store).write, node.drop

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                return drop("null-key")
            write(key, value, timestamp, headers)
            return None

        return process
