"""Clients of a whole application: ask any instance, and get one snapshot of all shards."""

from headrace.queries.client.async_client import AsyncQueryClient, AsyncRemoteStore
from headrace.queries.client.client import QueryClient, RemoteStore
from headrace.queries.client.events import StoreChange, StoreReset

__all__ = [
    "AsyncQueryClient",
    "AsyncRemoteStore",
    "QueryClient",
    "RemoteStore",
    "StoreChange",
    "StoreReset",
]
