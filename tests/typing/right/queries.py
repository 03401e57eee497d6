"""Queries know the types of keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_type

from headrace import KafkaStreams, ValueAndTimestamp, VersionedRecord, Windowed
from headrace.queries import (
    KeyQuery,
    QueryableStoreTypes,
    RangeQuery,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
    StateQueryRequest,
    StateQueryResult,
    TimestampedKeyQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)


@dataclass
class Revenue:
    orders: int = 0
    total: float = 0.0


def read(streams: KafkaStreams) -> None:
    """Read stores whose types are given where they are asked for."""
    store = streams.store("revenue", QueryableStoreTypes.key_value_store(str, Revenue))
    assert_type(store, ReadOnlyKeyValueStore[str, Revenue])
    assert_type(store.get("rome"), Revenue | None)
    assert_type(store.all(), Iterator[tuple[str, Revenue]])
    windows = streams.store("windows", QueryableStoreTypes.window_store(str, int))
    assert_type(windows.fetch("rome", 0), int | None)
    assert_type(windows.fetch("rome", 0, 9), Iterator[tuple[int, int]])
    assert_type(windows.fetch_all(0, 9), Iterator[tuple[Windowed[str], int]])
    sessions = streams.store("sessions", QueryableStoreTypes.session_store(str, int))
    assert_type(sessions, ReadOnlySessionStore[str, int])
    timestamped = QueryableStoreTypes.timestamped_window_store(str, int)
    found = streams.store("windows", timestamped, partition=0, stale=True)
    assert_type(found, ReadOnlyWindowStore[str, ValueAndTimestamp[int]])


def annotate(streams: KafkaStreams) -> ReadOnlyKeyValueStore[str, Revenue]:
    """Read a store whose types the annotation gives."""
    store: ReadOnlyKeyValueStore[str, Revenue] = streams.store(
        "revenue", QueryableStoreTypes.key_value_store()
    )
    return store


def ask(streams: KafkaStreams) -> None:
    """Ask queries, whose types are those of their results."""
    by_key = streams.query(StateQueryRequest("revenue", KeyQuery[str, Revenue]("rome")))
    assert_type(by_key, StateQueryResult[Revenue])
    only = by_key.only_partition_result
    if only is not None:
        assert_type(only.result, Revenue | None)
    ranged = streams.query(StateQueryRequest("revenue", RangeQuery[str, Revenue]("a", "b")))
    assert_type(ranged, StateQueryResult[Iterator[tuple[str, Revenue]]])
    timed = streams.query(StateQueryRequest("revenue", TimestampedKeyQuery[str, Revenue]("rome")))
    assert_type(timed, StateQueryResult[ValueAndTimestamp[Revenue]])
    windowed = streams.query(StateQueryRequest("w", WindowKeyQuery[str, int]("rome", 0, 9)))
    assert_type(windowed, StateQueryResult[Iterator[tuple[int, int]]])
    everywhere = streams.query(StateQueryRequest("w", WindowRangeQuery[str, int](start=0, end=9)))
    assert_type(everywhere, StateQueryResult[Iterator[tuple[Windowed[str], int]]])
    version = streams.query(StateQueryRequest("v", VersionedKeyQuery[str, int]("rome", as_of=5)))
    assert_type(version, StateQueryResult[VersionedRecord[int]])
