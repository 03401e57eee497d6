"""A whole store of the application, read by a program that has no event loop."""

from __future__ import annotations

import asyncio

import pytest

from headrace.queries.coordination.coordinator import read_whole_store
from headrace.queries.problems import QueryProblemError
from tests.unit.queries.fake_cluster import STORE, FakeApplication, FakeCluster

KEYS = [f"key-{number:02}".encode() for number in range(40)]


async def _cluster() -> FakeCluster:
    """Three instances, each with one of three shards."""
    application = FakeApplication(3)
    application.commit({STORE: dict.fromkeys(KEYS, b"1")})
    cluster = FakeCluster(application, standbys=0)
    cluster.apply_everywhere()
    return cluster


def test_the_shards_of_other_instances_are_read_too() -> None:
    cluster = asyncio.run(_cluster())
    one = cluster.instances["a"]
    assert len(one.status().shards) < 2 * 3, "it does not have all shards of both stores"

    store, rows = read_whole_store(one, cluster, STORE)

    assert store.name == STORE
    assert [row.key for row in rows] == KEYS
    assert {*cluster.asked} == {"b", "c"}
    assert cluster.is_closed


def test_a_program_with_an_event_loop_may_read_too() -> None:
    async def main() -> list[bytes]:
        cluster = await _cluster()
        _, rows = read_whole_store(cluster.instances["a"], cluster, STORE)
        return [row.key for row in rows]

    assert asyncio.run(main()) == KEYS


def test_problems_reach_the_caller() -> None:
    cluster = asyncio.run(_cluster())

    with pytest.raises(QueryProblemError, match="Did you mean"):
        read_whole_store(cluster.instances["a"], cluster, f"{STORE}x")

    assert cluster.is_closed
