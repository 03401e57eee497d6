"""Answers interactive queries v2 from a store of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.durations import MAX_MS
from headrace.queries.local.state_queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from headrace.records import VersionedRecord, timestamp_ms
from headrace.serdes.base import Serde
from headrace.state.key_value import PlainValues
from headrace.state.store_types.base import LoggedStoreType
from headrace.state.store_types.key_value import KeyValueType
from headrace.state.store_types.versioned import VersionedType
from headrace.state.store_types.window import SessionType, WindowType


def can_answer(query: Query[Any], store_type: LoggedStoreType) -> bool:
    """Return whether a store of a type answers a query."""
    match query:
        case KeyQuery() | RangeQuery():
            return isinstance(store_type, KeyValueType)
        case TimestampedKeyQuery() | TimestampedRangeQuery():
            return isinstance(store_type, KeyValueType) and store_type.has_timestamps
        case WindowKeyQuery():
            return isinstance(store_type, WindowType)
        case WindowRangeQuery():
            return isinstance(store_type, WindowType if query.key is None else SessionType)
        case VersionedKeyQuery() | MultiVersionedKeyQuery():
            return isinstance(store_type, VersionedType)
    return False


def answer(query: Query[Any], store: Any, value: Serde[Any], *, timestamped: bool) -> Any:
    """Return the result of a query; None: there is nothing under its key.

    Args:
        query: The query, which the store can answer.
        store: The store of the engine.
        value: The serde of its values.
        timestamped: Whether it keeps timestamps.
    """
    match query:
        case KeyQuery(key):
            return (PlainValues(store) if timestamped else store).get(key)
        case RangeQuery():
            return _range(query, PlainValues(store) if timestamped else store)
        case TimestampedKeyQuery(key):
            return store.get(key)
        case TimestampedRangeQuery():
            return _range(query, store)
        case WindowKeyQuery(key, start, end):
            return store.fetch(key, start, end)
        case WindowRangeQuery(key=None):
            return store.fetch_all(query.start, query.end)
        case WindowRangeQuery():
            return store.fetch(query.key)
    return _versions(query, store, value.deserialize)


def _range(query: RangeQuery[Any, Any] | TimestampedRangeQuery[Any, Any], store: Any) -> Any:
    scan = store.reverse_range if query.descending else store.range
    return scan(query.start, query.end)


def _versions(query: Query[Any], store: Any, deserialize: Callable[[bytes], Any]) -> Any:
    """Return versions with the time until which they were valid, which `get` leaves out."""
    assert isinstance(query, VersionedKeyQuery | MultiVersionedKeyQuery), "the others are done"
    encoded = store.encoded_key(query.key)
    if isinstance(query, VersionedKeyQuery):
        as_of = MAX_MS if query.as_of is None else timestamp_ms(query.as_of)
        found = store.version_at(encoded, as_of)
        if found is None:
            return None
        return VersionedRecord(deserialize(found[0]), *found[1:])
    start = 0 if query.start is None else timestamp_ms(query.start)
    end = MAX_MS if query.end is None else timestamp_ms(query.end)
    versions = [*store.versions(encoded, start, end)]
    if query.ascending:
        versions.reverse()
    return (VersionedRecord(deserialize(each[0]), *each[1:]) for each in versions)
