"""Finds the type of a store: the only file that asks for its kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import StateStoreError
from headrace.serdes.base import serde_for_topic
from headrace.state.store_types.base import LoggedStoreType, StoreKind, StoreType
from headrace.state.store_types.internal import (
    JoinBufferType,
    SubscriptionType,
    SuppressBufferType,
    UnmatchedType,
)
from headrace.state.store_types.key_value import KeyValueType, LruMapType, TimestampedKeyValueType
from headrace.state.store_types.versioned import VersionedType
from headrace.state.store_types.window import SessionType, TimestampedWindowType, WindowType

if TYPE_CHECKING:
    from headrace.state.specs import StoreBuilder

_LOGGED_TYPES: tuple[type[LoggedStoreType], ...] = (
    KeyValueType,
    TimestampedKeyValueType,
    WindowType,
    TimestampedWindowType,
    SessionType,
    VersionedType,
    LruMapType,
)
_INTERNAL_TYPES: tuple[type[StoreType], ...] = (
    SuppressBufferType,
    JoinBufferType,
    UnmatchedType,
    SubscriptionType,
)
_TYPES: dict[StoreKind, type[StoreType]] = {
    each.kind: each for each in (*_LOGGED_TYPES, *_INTERNAL_TYPES)
}


def kind_in_words(store: StoreBuilder[Any]) -> str:
    """Return the kind of a store as people read it."""
    return store.kind.replace("_", " ")


def type_of(store: StoreBuilder[Any]) -> StoreType:
    """Return the type of a store.

    Raises:
        StateStoreError: There is no such kind of store.
    """
    found = _TYPES.get(store.kind)
    if found is None:
        msg = f"Store {store.name!r} is a {store.kind!r} store, which this engine cannot open."
        raise StateStoreError(msg)
    return found(store)


def bound_to(store: StoreBuilder[Any], topic: str) -> StoreBuilder[Any]:
    """Return a store with serdes that know their topic: as in Kafka, that of its changelog."""
    return replace(
        store,
        key=store.key.given(serde_for_topic(store.key.need, topic, is_key=True)),
        value=store.value.given(serde_for_topic(store.value.need, topic, is_key=False)),
    )


def logged_type_named(kind: str) -> type[LoggedStoreType]:
    """Return the type of the stores of a kind, by the name that an instance gives it.

    Raises:
        StateStoreError: There is no such kind of stores that have a changelog.
    """
    found = next((each for each in _LOGGED_TYPES if each.kind == kind), None)
    if found is None:
        msg = f"This version of Headrace has no {kind!r} stores. Use the version of the instance."
        raise StateStoreError(msg)
    return found


def logged_type_of(store: StoreBuilder[Any]) -> LoggedStoreType:
    """Return the type of a store that has a changelog."""
    store_type = type_of(store)
    assert isinstance(store_type, LoggedStoreType), f"{store.name} has no changelog"
    return store_type
