"""Stores as a test sees them: across partitions, and with plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from headrace.engine.task import Task
from headrace.serdes.partitioner import partition_for_key
from headrace.state.key_value import BaseKeyValue, KeyValue, PlainValues, TimestampedKeyValue
from headrace.windows.window import Windowed

_BY_KEY = frozenset(
    {
        "get",
        "put",
        "put_if_absent",
        "delete",
        "fetch",
        "backward_fetch",
        "find_sessions",
        "backward_find_sessions",
        "fetch_session",
        "remove",
    }
)


def driver_store(name: str, tasks: Sequence[Task]) -> Any:
    """Return a store of the tasks; of several, one that shows them all. None if there is none."""
    holders = [task for task in tasks if name in task.stores]
    if not holders:
        return None
    if len(holders) == 1:
        return holders[0].stores[name]
    return PartitionedStore(name, [task.stores[name] for task in holders])


class PartitionedStore:
    """The stores of several partitions as one: a key is looked up in its own."""

    def __init__(self, name: str, stores: Sequence[Any]) -> None:
        self.name = name
        self.persistent = stores[0].persistent
        self.partitions = tuple(stores)
        """The store of each partition."""

    def __getattr__(self, method: str) -> Any:
        getattr(self.partitions[0], method)  # what one store cannot do, all of them cannot
        if method in _BY_KEY:
            return lambda key, *rest, **named: getattr(self._of(key), method)(key, *rest, **named)

        def everywhere(*arguments: Any, **named: Any) -> Iterator[Any]:
            return chain.from_iterable(
                getattr(store, method)(*arguments, **named) for store in self.partitions
            )

        return everywhere

    def put_all(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Put each pair into the partition of its key."""
        for key, value in pairs:
            self._of(key).put(key, value)

    def approximate_num_entries(self) -> int:
        """Return about how many entries all partitions have."""
        return sum(store.approximate_num_entries() for store in self.partitions)

    def _of(self, key: Any) -> Any:
        base = key.key if isinstance(key, Windowed) else key
        encoded = self.partitions[0].encoded_key(base)
        return self.partitions[partition_for_key(encoded, len(self.partitions))]


def plain_values(store: Any, store_class: type[Any]) -> Any:
    """Return a store of one class with plain values; None if it is of another."""
    if isinstance(store, PartitionedStore):
        plain = [plain_values(each, store_class) for each in store.partitions]
        return None if plain[0] is None else PartitionedStore(store.name, plain)
    if not isinstance(store, store_class):
        return None
    if isinstance(store, TimestampedKeyValue):
        return PlainValues(store)
    as_plain = getattr(store, "plain_values", None)
    return store if as_plain is None else as_plain()


def timestamped(store: Any, store_class: type[Any]) -> Any:
    """Return a store of one class with timestamps; None if it is of another, or has none."""
    first = store.partitions[0] if isinstance(store, PartitionedStore) else store
    if not isinstance(first, store_class) or isinstance(first, KeyValue):
        return None
    return store if getattr(first, "timestamped", isinstance(first, BaseKeyValue)) else None
