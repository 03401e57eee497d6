"""Compute a table from another, entry by entry: filter, map_values, transform_values, to_stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.processors.operation import (
    NodeContext,
    Operation,
    Process,
    StoredValue,
    TableOperation,
    ValueGetter,
)
from headrace.processors.table_forward import IS_LATEST, NOT_PUT, Emit, change_emitter, store_getter
from headrace.records import Headers

ComputeValue = Callable[[Any, Any], Any]
"""The new value of an entry from its key and its parent's value."""


@dataclass(frozen=True, kw_only=True)
class _ComputedTable(TableOperation):
    """A table that is computed from its parent, entry by entry."""

    @abstractmethod
    def _compute(self) -> ComputeValue:
        """Return the function that computes the value of an entry."""

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        if self.store_name is not None:
            return store_getter(node, self.store_name)
        compute = self._compute()

        def value_of(key: Any, stored: StoredValue) -> StoredValue:
            if stored is None:
                return None
            value = compute(key, stored[0])
            return None if value is None else (value, stored[1])

        return parent().mapped(value_of)


@dataclass(frozen=True, kw_only=True)
class TableFilter(_ComputedTable):
    """Keep the entries a predicate accepts (or, negated, refuses); delete the others."""

    predicate: Callable[[Any, Any], bool]
    negated: bool = False
    versioned: bool = False
    """Whether the table that enters is versioned: then every tombstone is passed on."""

    def _compute(self) -> ComputeValue:
        predicate, negated = self.predicate, self.negated

        def compute(key: Any, value: Any) -> Any:
            return value if value is not None and predicate(key, value) != negated else None

        return compute

    def bind(self, node: NodeContext) -> Process:
        swallows = self.sends_old_values and not self.versioned
        return _bind_computed(node, self, self._compute(), swallows=swallows)


@dataclass(frozen=True, kw_only=True)
class TableMapValues(_ComputedTable):
    """Map the value of each entry; deletions are passed on."""

    mapper: Callable[[Any, Any], Any]

    def _compute(self) -> ComputeValue:
        mapper = self.mapper

        def compute(key: Any, value: Any) -> Any:
            return None if value is None else mapper(key, value)

        return compute

    def bind(self, node: NodeContext) -> Process:
        return _bind_computed(node, self, self._compute())


@dataclass(frozen=True, kw_only=True)
class TableTransformValues(TableOperation):
    """Map the value of each entry with a `ValueTransformerWithKey`, renewed at each commit."""

    supplier: Callable[[], Any]

    stateless = False
    may_schedule = True
    looks_up_global_stores = True

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        if self.store_name is not None:
            return store_getter(node, self.store_name)
        context = node.transformer_context()
        transform = _renewed(self.supplier, node, context)

        def value_of(key: Any, stored: StoredValue) -> StoredValue:
            with context.without_record():
                value = transform(key, None if stored is None else stored[0])
            return None if value is None else (value, -1 if stored is None else stored[1])

        return parent().mapped(value_of)

    def bind(self, node: NodeContext) -> Process:
        transform = _renewed(self.supplier, node, node.transformer_context())
        return _bind_computed(node, self, transform)


def _renewed(supplier: Callable[[], Any], node: NodeContext, context: Any) -> ComputeValue:
    """Return the ``transform`` of the transformer that is current: a new one after each commit."""
    current: Any = None

    def start() -> None:
        nonlocal current
        current = supplier()
        context.initialise(current)

    def renew() -> None:
        context.close(current)
        start()

    def transform(key: Any, value: Any) -> Any:
        return current.transform(key, value)

    node.on_start(start)
    node.on_commit(renew)
    node.on_close(lambda: context.close(current))
    return transform


def _bind_computed(
    node: NodeContext, table: TableOperation, compute: ComputeValue, *, swallows: bool = False
) -> Process:
    """Return what computes each change; ``swallows`` leaves out those of None to None."""
    fail, sends_old = node.fail, table.sends_old_values
    store = None if table.store_name is None else node.store(table.store_name)
    emit = _emitter(node, store, old_values=sends_old)

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        new, old, latest = value
        try:
            new_value = compute(key, new)
            old_value = _old(key, old, store, compute) if sends_old else None
            if swallows and new_value is None and old_value is None:
                return None
            if store is not None:
                written = store.write(key, new_value, timestamp, headers)
                if written == NOT_PUT:
                    return None
                latest = written == IS_LATEST
        except Exception as error:
            return fail(error, key, new, timestamp, headers)
        return emit(key, new_value, old_value, timestamp, headers, latest)

    return process


def _old(key: Any, old: Any, store: Any, compute: ComputeValue) -> Any:
    if store is None:
        return compute(key, old)
    stored = store.read(key)
    return None if stored is None else stored[0]


def _emitter(node: NodeContext, store: Any, *, old_values: bool) -> Emit:
    if store is not None:
        return change_emitter(node, store, old_values=old_values)
    forward = node.forward

    def emit(key: Any, new: Any, old: Any, timestamp: int, headers: Headers, latest: bool) -> None:
        forward(key, (new, old, latest), timestamp, headers)

    return emit


@dataclass(frozen=True)
class ToStream(Operation):
    """Forward the new value of each change; a deletion is a record without a value."""

    def bind(self, node: NodeContext) -> Process:
        forward = node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, value[0], timestamp, headers)

        return process
