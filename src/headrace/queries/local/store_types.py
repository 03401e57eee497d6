"""The types of stores that `KafkaStreams.store` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from headrace.queries.catalog import QueryableStore
from headrace.queries.local.local_partitions import LocalPartitions
from headrace.queries.local.local_stores import (
    LocalKeyValueStore,
    LocalSessionStore,
    LocalVersionedStore,
    LocalWindowStore,
)
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.records import K, V, ValueAndTimestamp
from headrace.serdes.base import SerdeLike
from headrace.state.store_types.base import LoggedStoreType
from headrace.state.store_types.key_value import KeyValueType
from headrace.state.store_types.lookup import kind_in_words
from headrace.state.store_types.versioned import VersionedType
from headrace.state.store_types.window import SessionType, WindowType
from headrace.state.stores import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedKeyValueStore,
    ReadOnlyWindowStore,
)

S = TypeVar("S")


@dataclass(frozen=True)
class QueryableStoreType(Generic[S]):
    """A type of store to ask for; `QueryableStoreTypes` makes them."""

    name: str
    accepts: Callable[[LoggedStoreType], bool]
    """Returns whether a store can be read as this type."""
    opened: Callable[[LocalPartitions], S]
    """Returns the store of these partitions."""

    def open(self, partitions: LocalPartitions) -> S:
        """Return a store of this type.

        Raises:
            QueryProblemError: The store is of another kind.
        """
        if not self.accepts(partitions.store.type):
            kind = kind_in_words(partitions.store.builder)
            msg = (
                f"Store {partitions.store.name!r} is a {kind} store, so it cannot be read as "
                f"`{self.name}`. Leave the type out, or name the store's own."
            )
            raise QueryProblemError(ProblemCode.WRONG_STORE_KIND, msg)
        return self.opened(partitions)


class QueryableStoreTypes:
    """The types of stores that can be asked for.

    Key and value types may be given for type checkers. The store's own serdes are used anyway.
    """

    @overload
    @staticmethod
    def key_value_store() -> QueryableStoreType[ReadOnlyKeyValueStore[Any, Any]]: ...
    @overload
    @staticmethod
    def key_value_store(
        key: SerdeLike[K], value: SerdeLike[V]
    ) -> QueryableStoreType[ReadOnlyKeyValueStore[K, V]]: ...
    @staticmethod
    def key_value_store(
        key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None
    ) -> QueryableStoreType[Any]:
        """Return the type of stores of one value per key; timestamps are left out."""
        return _KEY_VALUE

    @overload
    @staticmethod
    def timestamped_key_value_store() -> QueryableStoreType[
        ReadOnlyKeyValueStore[Any, ValueAndTimestamp[Any]]
    ]: ...
    @overload
    @staticmethod
    def timestamped_key_value_store(
        key: SerdeLike[K], value: SerdeLike[V]
    ) -> QueryableStoreType[ReadOnlyKeyValueStore[K, ValueAndTimestamp[V]]]: ...
    @staticmethod
    def timestamped_key_value_store(
        key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None
    ) -> QueryableStoreType[Any]:
        """Return the type of stores of one value and its timestamp per key."""
        return _TIMESTAMPED_KEY_VALUE

    @overload
    @staticmethod
    def window_store() -> QueryableStoreType[ReadOnlyWindowStore[Any, Any]]: ...
    @overload
    @staticmethod
    def window_store(
        key: SerdeLike[K], value: SerdeLike[V]
    ) -> QueryableStoreType[ReadOnlyWindowStore[K, V]]: ...
    @staticmethod
    def window_store(
        key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None
    ) -> QueryableStoreType[Any]:
        """Return the type of stores of one value per key and window; timestamps are left out."""
        return _WINDOW

    @overload
    @staticmethod
    def timestamped_window_store() -> QueryableStoreType[
        ReadOnlyWindowStore[Any, ValueAndTimestamp[Any]]
    ]: ...
    @overload
    @staticmethod
    def timestamped_window_store(
        key: SerdeLike[K], value: SerdeLike[V]
    ) -> QueryableStoreType[ReadOnlyWindowStore[K, ValueAndTimestamp[V]]]: ...
    @staticmethod
    def timestamped_window_store(
        key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None
    ) -> QueryableStoreType[Any]:
        """Return the type of stores of one value and its timestamp per key and window."""
        return _TIMESTAMPED_WINDOW

    @overload
    @staticmethod
    def session_store() -> QueryableStoreType[ReadOnlySessionStore[Any, Any]]: ...
    @overload
    @staticmethod
    def session_store(
        key: SerdeLike[K], value: SerdeLike[V]
    ) -> QueryableStoreType[ReadOnlySessionStore[K, V]]: ...
    @staticmethod
    def session_store(
        key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None
    ) -> QueryableStoreType[Any]:
        """Return the type of stores of one value per key and session."""
        return _SESSION

    @overload
    @staticmethod
    def versioned_key_value_store() -> QueryableStoreType[
        ReadOnlyVersionedKeyValueStore[Any, Any]
    ]: ...
    @overload
    @staticmethod
    def versioned_key_value_store(
        key: SerdeLike[K], value: SerdeLike[V]
    ) -> QueryableStoreType[ReadOnlyVersionedKeyValueStore[K, V]]: ...
    @staticmethod
    def versioned_key_value_store(
        key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None
    ) -> QueryableStoreType[Any]:
        """Return the type of stores of the values of a key over time. Kafka has no such type."""
        return _VERSIONED


_KEY_VALUE = QueryableStoreType[Any](
    "key_value_store",
    lambda kind: isinstance(kind, KeyValueType),
    lambda partitions: LocalKeyValueStore(partitions, timestamped=False),
)
_TIMESTAMPED_KEY_VALUE = QueryableStoreType[Any](
    "timestamped_key_value_store",
    lambda kind: isinstance(kind, KeyValueType) and kind.has_timestamps,
    lambda partitions: LocalKeyValueStore(partitions, timestamped=True),
)
_WINDOW = QueryableStoreType[Any](
    "window_store",
    lambda kind: isinstance(kind, WindowType),
    lambda partitions: LocalWindowStore(partitions, timestamped=False),
)
_TIMESTAMPED_WINDOW = QueryableStoreType[Any](
    "timestamped_window_store",
    lambda kind: isinstance(kind, WindowType) and kind.has_timestamps,
    lambda partitions: LocalWindowStore(partitions, timestamped=True),
)
_SESSION = QueryableStoreType[Any](
    "session_store", lambda kind: isinstance(kind, SessionType), LocalSessionStore
)
_VERSIONED = QueryableStoreType[Any](
    "versioned_key_value_store", lambda kind: isinstance(kind, VersionedType), LocalVersionedStore
)


def plain_type_of(store: QueryableStore) -> QueryableStoreType[Any]:
    """Return the type that shows a store with plain values."""
    types = (_KEY_VALUE, _WINDOW, _SESSION, _VERSIONED)
    return next(each for each in types if each.accepts(store.type))
