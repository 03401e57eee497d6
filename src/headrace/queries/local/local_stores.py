"""Stores of this instance: all its partitions as one, each read at the newest snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Generic, overload

from headrace.queries.local.local_partitions import LocalPartitions
from headrace.queries.store_views import count_entries, get_entry
from headrace.records import K, Timestamp, V, ValueAndTimestamp, VersionedRecord
from headrace.state.key_value import PlainValues
from headrace.windows.window import Windowed


class _LocalStore:
    """The state that the stores of an instance share."""

    def __init__(self, partitions: LocalPartitions, view: Callable[[Any], Any] | None) -> None:
        self._partitions = partitions
        self._view = view

    @property
    def name(self) -> str:
        """The name the store was built with."""
        return self._partitions.store.name

    @property
    def persistent(self) -> bool:
        """Return whether the store was asked to live on disk."""
        return bool(self._partitions.store.builder.persistent)

    def _all(self) -> list[Any]:
        return self._viewed(self._partitions.open_all())

    def _of(self, key: Any) -> list[Any]:
        return self._viewed(self._partitions.open_for(key))

    def _viewed(self, stores: list[Any]) -> list[Any]:
        return stores if self._view is None else [*map(self._view, stores)]


def _first(found: Iterator[Any]) -> Any:
    """Return the first result that is not None."""
    return next((each for each in found if each is not None), None)


class LocalKeyValueStore(_LocalStore, Generic[K, V]):
    """A `ReadOnlyKeyValueStore` of what this instance holds.

    Scans return one partition after the other, each in the order of its keys.
    """

    def __init__(self, partitions: LocalPartitions, *, timestamped: bool) -> None:
        unwraps = partitions.store.type.has_timestamps and not timestamped
        super().__init__(partitions, PlainValues if unwraps else None)
        self._timestamped = timestamped

    def get(self, key: K) -> V | None:
        store = self._partitions.store
        encoded = store.key.serialize(key)
        for shown, partition in self._partitions.shown_for(key):
            found = get_entry(shown, store, partition, encoded)
            if found is not None:
                value: Any = store.value.deserialize(found[0])
                return ValueAndTimestamp(value, found[1]) if self._timestamped else value  # type: ignore[return-value,arg-type]  # V is one or the other
        return None

    def range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(store.range(start, end) for store in self._all())

    def reverse_range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(store.reverse_range(start, end) for store in self._all())

    def all(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(store.all() for store in self._all())

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(store.reverse_all() for store in self._all())

    def prefix_scan(self, prefix: K) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(store.prefix_scan(prefix) for store in self._all())

    def approximate_num_entries(self) -> int:
        shown, partitions = self._partitions.shown()
        return sum(count_entries(shown, self._partitions.store, each) for each in partitions)


class LocalWindowStore(_LocalStore, Generic[K, V]):
    """A `ReadOnlyWindowStore` of what this instance holds.

    Fetches of several keys return one partition after the other.
    """

    def __init__(self, partitions: LocalPartitions, *, timestamped: bool) -> None:
        super().__init__(partitions, None if timestamped else lambda store: store.plain_values())

    @overload
    def fetch(self, key: K, start: Timestamp, /) -> V | None: ...
    @overload
    def fetch(self, key: K, start: Timestamp, end: Timestamp, /) -> Iterator[tuple[int, V]]: ...
    def fetch(
        self, key: K, start: Timestamp, end: Timestamp | None = None, /
    ) -> V | Iterator[tuple[int, V]] | None:
        stores = self._of(key)
        if end is None:
            found: V | None = _first(store.fetch(key, start) for store in stores)
            return found
        return chain.from_iterable(store.fetch(key, start, end) for store in stores)

    def backward_fetch(self, key: K, start: Timestamp, end: Timestamp) -> Iterator[tuple[int, V]]:
        found = (store.backward_fetch(key, start, end) for store in self._of(key))
        return chain.from_iterable(found)

    def fetch_range(
        self, first: K | None, last: K | None, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        found = (store.fetch_range(first, last, start, end) for store in self._all())
        return chain.from_iterable(found)

    def backward_fetch_range(
        self, first: K | None, last: K | None, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        found = (store.backward_fetch_range(first, last, start, end) for store in self._all())
        return chain.from_iterable(found)

    def fetch_all(self, start: Timestamp, end: Timestamp) -> Iterator[tuple[Windowed[K], V]]:
        return chain.from_iterable(store.fetch_all(start, end) for store in self._all())

    def backward_fetch_all(
        self, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        return chain.from_iterable(store.backward_fetch_all(start, end) for store in self._all())

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        return chain.from_iterable(store.all() for store in self._all())

    def backward_all(self) -> Iterator[tuple[Windowed[K], V]]:
        return chain.from_iterable(store.backward_all() for store in self._all())


class LocalSessionStore(_LocalStore, Generic[K, V]):
    """A `ReadOnlySessionStore` of what this instance holds.

    Fetches of several keys return one partition after the other.
    """

    def __init__(self, partitions: LocalPartitions) -> None:
        super().__init__(partitions, None)

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        return chain.from_iterable(store.fetch(key) for store in self._of(key))

    def backward_fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        return chain.from_iterable(store.backward_fetch(key) for store in self._of(key))

    def fetch_range(self, first: K | None, last: K | None) -> Iterator[tuple[Windowed[K], V]]:
        return chain.from_iterable(store.fetch_range(first, last) for store in self._all())

    def backward_fetch_range(
        self, first: K | None, last: K | None
    ) -> Iterator[tuple[Windowed[K], V]]:
        found = (store.backward_fetch_range(first, last) for store in self._all())
        return chain.from_iterable(found)

    def find_sessions(
        self, key: K, earliest_end: Timestamp, latest_start: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        found = (store.find_sessions(key, earliest_end, latest_start) for store in self._of(key))
        return chain.from_iterable(found)

    def backward_find_sessions(
        self, key: K, earliest_end: Timestamp, latest_start: Timestamp
    ) -> Iterator[tuple[Windowed[K], V]]:
        times = earliest_end, latest_start
        found = (store.backward_find_sessions(key, *times) for store in self._of(key))
        return chain.from_iterable(found)

    def fetch_session(self, key: K, start: Timestamp, end: Timestamp) -> V | None:
        found: V | None = _first(store.fetch_session(key, start, end) for store in self._of(key))
        return found

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        return chain.from_iterable(store.all() for store in self._all())

    def backward_all(self) -> Iterator[tuple[Windowed[K], V]]:
        return chain.from_iterable(store.backward_all() for store in self._all())


class LocalVersionedStore(_LocalStore, Generic[K, V]):
    """A `ReadOnlyVersionedKeyValueStore` of what this instance holds."""

    def __init__(self, partitions: LocalPartitions) -> None:
        super().__init__(partitions, None)

    def get(self, key: K, as_of: Timestamp | None = None) -> VersionedRecord[V] | None:
        found: VersionedRecord[V] | None = _first(store.get(key, as_of) for store in self._of(key))
        return found
