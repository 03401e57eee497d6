"""Instances that keep copies of an application's stores and answer queries at one snapshot."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from headrace.queries.client import (
        AsyncQueryClient,
        AsyncRemoteStore,
        QueryClient,
        RemoteStore,
        StoreChange,
        StoreReset,
    )
    from headrace.queries.server import create_app
    from headrace.queries.tables.sql_values import SqlResult
    from headrace.queries.tokens import Token

__all__ = [
    "AsyncQueryClient",
    "AsyncRemoteStore",
    "FailureReason",
    "HostInfo",
    "KeyQuery",
    "KeyQueryMetadata",
    "MultiVersionedKeyQuery",
    "Position",
    "PositionBound",
    "ProblemCode",
    "Query",
    "QueryClient",
    "QueryProblemError",
    "QueryResult",
    "QueryableStoreType",
    "QueryableStoreTypes",
    "RangeQuery",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyVersionedKeyValueStore",
    "ReadOnlyWindowStore",
    "RemoteStore",
    "SqlResult",
    "StateQueryRequest",
    "StateQueryResult",
    "StoreChange",
    "StoreReset",
    "StreamsMetadata",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "Token",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "create_app",
]

_ON_DEMAND = {
    "AsyncQueryClient": "headrace.queries.client",
    "AsyncRemoteStore": "headrace.queries.client",
    "QueryClient": "headrace.queries.client",
    "RemoteStore": "headrace.queries.client",
    "SqlResult": "headrace.queries.tables.sql_values",
    "StoreChange": "headrace.queries.client",
    "StoreReset": "headrace.queries.client",
    "Token": "headrace.queries.tokens",
    "create_app": "headrace.queries.server",
}
"""Names whose modules need the extra ``server``, or import much."""


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return getattr(import_module(_ON_DEMAND[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
