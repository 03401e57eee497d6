"""Left and right events, joined by key and time; those without a partner show alone.

Beside that each event is echoed, and the results of each key are collected.

The order in which two topics are read is undefined, and a late event would make it visible. So the
events of one act lie closer together than the window is wide, and the next act begins when the last
one was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.workloads.generating import (
    FIRST_MS,
    PARTITIONS,
    SETTINGS,
    identity,
    sent,
)
from chaos.workloads.stamping import stamped_together
from headrace import JoinWindows, KStream, Materialized, StreamsBuilder, Topology

_ACT = 400
_BETWEEN_ACTS_MS = 600_000
_PATTERN = (
    "join-left",
    "join-right",
    "join-left",
    "join-left",
    "join-right",
    "join-left",
    "join-right",
    "join-right",
)
_KEYS = (0, 0, 1, 2, 2, 2, 3, 4)
"""The groups of each eight events: both sides, one alone, two with one, two alone."""


def pair(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any]:
    """Return the ids of a pair."""
    return {"left": left and left["id"], "right": right and right["id"]}


def _collect(_key: str, result: dict[str, Any], all_pairs: list[str]) -> list[str]:
    """Return the results of a key with one more; their order is undefined."""
    return sorted([*all_pairs, f"{result['left']} {result['right']}"])


def write_joined(
    name: str,
    joined: KStream[str, dict[str, Any]],
    echoes: Mapping[str, KStream[str, dict[str, Any]]],
    *,
    results: str,
) -> None:
    """Write the results of a join, those of each key together, and both sides, batch by batch.

    Args:
        name: Begins the names of the store, and of the topic that has the results of each key.
        joined: The results.
        echoes: Other streams to write, by topic.
        results: The topic of the results.
    """
    collected = joined.group_by_key(key=str, value=dict[str, Any]).aggregate(
        list, _collect, materialized=Materialized(f"{name}-store", key=str, value=list[str])
    )
    *sides, changes, shown = stamped_together(
        f"{name}-stamped", *echoes.values(), collected.to_stream(), joined
    )
    for topic, side in zip(echoes, sides, strict=True):
        side.to(topic, key=str, value=dict[str, Any])
    changes.to(f"{name}-collected", key=str, value=list[str])
    shown.to(results, key=str, value=dict[str, Any])


def _topology() -> Topology:
    builder = StreamsBuilder()
    left = builder.stream("join-left", key=str, value=dict[str, Any])
    right = builder.stream("join-right", key=str, value=dict[str, Any])
    windows = JoinWindows(oracle.JOIN_MS, grace=oracle.JOIN_GRACE_MS)
    joined = left.outer_join(right, pair, windows, value=dict[str, Any])
    write_joined(
        "join", joined, {"join-left-echo": left, "join-right-echo": right}, results="join-results"
    )
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        block, index = divmod(number, len(_PATTERN))
        key = f"key-{seed}-{block}-{_KEYS[index]}"
        timestamp = FIRST_MS + number // _ACT * _BETWEEN_ACTS_MS + number % _ACT
        yield sent(_PATTERN[index], key, timestamp, {"id": identity(seed, key, number)})


WORKLOAD = Workload(
    name="outer_join",
    topics={"join-left": PARTITIONS, "join-right": PARTITIONS},
    outputs={
        "join-left-echo": PARTITIONS,
        "join-right-echo": PARTITIONS,
        "join-collected": PARTITIONS,
        "join-results": PARTITIONS,
    },
    stores={"join-store": "key_value"},
    settings=SETTINGS,
    act=_ACT,
    topology=_topology,
    records=_records,
    expected=oracle.outer_join,
    observed=oracle.outer_join_seen,
    traced=lambda outputs: oracle.ids_in(outputs, "join-left-echo", "join-right-echo"),
    shown=("join-store", "join-collected"),
)
