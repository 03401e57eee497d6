"""Open cursors: the copies keep the snapshot of a read while it reads, and not longer."""

from __future__ import annotations

import asyncio

import pytest

from headrace.queries.coordination import coordinator
from headrace.queries.coordination.answers import Bound
from headrace.queries.reads import ScanKeys
from headrace.queries.tokens import Token
from tests.unit.queries.fake_cluster import STORE, FakeApplication, FakeCluster
from tests.unit.queries.virtual_time import run_virtually

KEYS = [f"key-{number:02}".encode() for number in range(60)]


def _cluster() -> FakeCluster:
    cluster = FakeCluster(FakeApplication())
    cluster.application.commit({STORE: dict.fromkeys(KEYS, b"1")})
    cluster.apply_everywhere()
    return cluster


async def _run_for(cluster: FakeCluster, seconds: int) -> None:
    """Write a snapshot of the application per second."""
    for _ in range(seconds):
        await asyncio.sleep(1)
        cluster.application.commit({STORE: {KEYS[0]: b"2"}})
        cluster.apply_everywhere()


def _open_cursors(cluster: FakeCluster) -> list[int]:
    return [each.snapshots.open_cursors() for each in cluster.instances.values()]


def _holders(cluster: FakeCluster, token: Token) -> list[str]:
    return [
        name
        for name, instance in cluster.instances.items()
        if token.snapshot in [each.record.snapshot for each in instance.snapshots]
    ]


def test_a_slow_stream_has_all_its_rows_and_then_lets_the_snapshot_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator, "CHUNK_ROWS", 3)

    async def main() -> None:
        cluster = _cluster()
        token, _, batches = await cluster.instances["a"].coordinator.row_batches(STORE, ScanKeys())
        rows = []
        async for batch in batches:
            rows += [(row.key, row.value) for row in batch]
            if len(rows) == 30:
                # Another instance reads the rest of some shards.
                cluster.instances["b"].is_alive = False
            await _run_for(cluster, 20)

        assert rows == [(key, b"1") for key in KEYS]
        await asyncio.sleep(1)
        assert _open_cursors(cluster)[::2] == [0, 0]
        await _run_for(cluster, 1)
        assert "a" not in _holders(cluster, token)

    run_virtually(main())


def test_the_last_page_lets_the_snapshot_go_and_a_page_every_minute_keeps_it() -> None:
    async def main() -> None:
        cluster = _cluster()
        page = await cluster.instances["a"].coordinator.page(STORE, ScanKeys(), limit=25)
        rows = [*page.rows]
        for name in "bc":
            await _run_for(cluster, 59)
            assert _open_cursors(cluster) == [1, 1, 1]
            page = await cluster.instances[name].coordinator.page(
                STORE, None, limit=25, cursor=page.next
            )
            rows += page.rows
        await asyncio.sleep(1)

        assert page.next is None
        assert [(row.key, row.value) for row in rows] == [(key, b"1") for key in KEYS]
        assert _open_cursors(cluster) == [0, 0, 0]
        await _run_for(cluster, 1)
        assert _holders(cluster, page.token) == []

    run_virtually(main())


def test_a_pin_is_released_when_its_reads_have_ended() -> None:
    async def main() -> None:
        cluster = _cluster()
        asked = cluster.instances["a"].coordinator
        pinned = await asked.pin_until_closed([STORE])
        await _run_for(cluster, 50)
        answer = await asked.read_key(STORE, KEYS[0], Bound(at=pinned.token))
        assert answer.rows[0].value == b"1"
        assert _open_cursors(cluster) == [1, 1, 1]

        asked.unpin(pinned)
        await _run_for(cluster, 1)

        assert _holders(cluster, pinned.token) == []

    run_virtually(main())
