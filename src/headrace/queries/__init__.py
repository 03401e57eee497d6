"""Instances that keep copies of an application's stores and answer queries at one snapshot."""

from __future__ import annotations

from headrace.queries.local.metadata import HostInfo, KeyQueryMetadata, StreamsMetadata
from headrace.queries.local.positions import Position, PositionBound
from headrace.queries.local.state_queries import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    QueryResult,
    RangeQuery,
    StateQueryRequest,
    StateQueryResult,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from headrace.queries.local.store_types import QueryableStoreType, QueryableStoreTypes
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.state.stores import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedKeyValueStore,
    ReadOnlyWindowStore,
)

__all__ = [
    "FailureReason",
    "HostInfo",
    "KeyQuery",
    "KeyQueryMetadata",
    "MultiVersionedKeyQuery",
    "Position",
    "PositionBound",
    "ProblemCode",
    "Query",
    "QueryProblemError",
    "QueryResult",
    "QueryableStoreType",
    "QueryableStoreTypes",
    "RangeQuery",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyVersionedKeyValueStore",
    "ReadOnlyWindowStore",
    "StateQueryRequest",
    "StateQueryResult",
    "StreamsMetadata",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
]
