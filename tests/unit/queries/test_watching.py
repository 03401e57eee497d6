from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import cast

import pytest

from headrace.queries.coordination import watching
from headrace.queries.coordination.answers import Change, EventId, Heartbeat, Reset
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.tokens import Token
from tests.unit.queries.fake_cluster import STORE, FakeApplication, FakeCluster
from tests.unit.queries.virtual_time import loop_time, run_virtually

Event = Change | Reset | Heartbeat
KEYS = [f"key-{number:02}".encode() for number in range(12)]


def _cluster(names: str = "abc", partitions: int = 3) -> FakeCluster:
    cluster = FakeCluster(FakeApplication(partitions), names)
    cluster.apply_everywhere()
    return cluster


def _commit(cluster: FakeCluster, changes: dict[bytes, bytes | None]) -> None:
    cluster.application.commit({STORE: changes})
    cluster.apply_everywhere()


async def _take(events: AsyncIterator[Event], count: int) -> list[Event]:
    return [await anext(events) for _ in range(count)]


async def _close(events: AsyncIterator[Event]) -> None:
    await cast(AsyncGenerator[Event, None], events).aclose()


def _pairs(events: list[Event]) -> list[tuple[bytes, bytes | None]]:
    return [(event.key, event.value) for event in events if isinstance(event, Change)]


def test_a_watch_yields_the_changes_of_each_snapshot_in_the_order_of_their_keys() -> None:
    async def main() -> None:
        cluster = _cluster()
        events = cluster.instances["a"].coordinator.watch(STORE)
        assert await anext(events) == Heartbeat(EventId(cluster.application.token()))
        _commit(cluster, dict.fromkeys(reversed(KEYS), b"1"))
        _commit(cluster, {KEYS[3]: None, KEYS[1]: b"2"})

        found = await _take(events, len(KEYS) + 2)
        assert _pairs(found) == [*((key, b"1") for key in KEYS), (KEYS[1], b"2"), (KEYS[3], None)]
        assert {event.event_id.token.snapshot for event in found} == {2, 3}
        assert await anext(events) == Heartbeat(EventId(cluster.application.token()))
        await _close(events)
        assert {each.listeners for each in cluster.instances.values()} == {0}

    run_virtually(main())


def test_heartbeats_name_snapshots_that_changed_nothing() -> None:
    async def main() -> None:
        cluster = _cluster()
        events = cluster.instances["a"].coordinator.watch(STORE)
        await anext(events)
        cluster.application.commit({})
        cluster.apply_everywhere()

        start = loop_time()
        assert await anext(events) == Heartbeat(EventId(cluster.application.token()))
        assert loop_time() - start == pytest.approx(5)
        await _close(events)

    run_virtually(main())


@pytest.mark.parametrize("cut", range(1, len(KEYS)))
def test_a_watch_resumes_on_another_instance_behind_the_last_change(cut: int) -> None:
    async def main() -> None:
        cluster = _cluster()
        since = EventId(cluster.application.token())
        _commit(cluster, dict.fromkeys(KEYS, b"1"))
        _commit(cluster, {KEYS[0]: b"2"})
        events = cluster.instances["a"].coordinator.watch(STORE, since=since)
        first = await _take(events, 1 + cut)
        await _close(events)

        events = cluster.instances["b"].coordinator.watch(STORE, since=first[-1].event_id)
        rest = await _take(events, 1 + len(KEYS) - cut + 1)
        await _close(events)
        assert _pairs([*first, *rest]) == [*((key, b"1") for key in KEYS), (KEYS[0], b"2")]

    run_virtually(main())


def test_only_the_changes_of_a_key_or_a_prefix_come_if_asked_so() -> None:
    async def main() -> None:
        cluster = _cluster()
        since = EventId(cluster.application.token())
        _commit(cluster, dict.fromkeys(KEYS, b"1"))
        coordinator = cluster.instances["a"].coordinator

        events = coordinator.watch(STORE, key=KEYS[4], since=since)
        assert _pairs(await _take(events, 3)) == [(KEYS[4], b"1")]
        await _close(events)
        events = coordinator.watch(STORE, prefix=b"key-1", since=since)
        assert _pairs(await _take(events, 4)) == [(KEYS[10], b"1"), (KEYS[11], b"1")]
        await _close(events)

    run_virtually(main())


def test_a_gap_is_announced_by_one_reset_with_the_token_to_read() -> None:
    async def main() -> None:
        cluster = _cluster()
        since = EventId(cluster.application.token())
        for value in (b"1", b"2"):
            cluster.application.commit({STORE: {KEYS[0]: value}})
        for instance in cluster.instances.values():
            instance.apply(3)
        cluster.gossip()
        events = cluster.instances["a"].coordinator.watch(STORE, since=since)

        heartbeat, reset = await _take(events, 2)
        assert heartbeat == Heartbeat(since)
        assert reset == Reset(cluster.application.token())
        _commit(cluster, {KEYS[1]: b"3"})
        assert _pairs([await anext(events)]) == [(KEYS[1], b"3")]
        await _close(events)

    run_virtually(main())


def test_a_token_of_another_history_is_reset() -> None:
    async def main() -> None:
        cluster = _cluster()
        events = cluster.instances["a"].coordinator.watch(
            STORE, since=EventId(Token("00000000", 1))
        )

        assert (await _take(events, 2))[1] == Reset(cluster.application.token())
        await _close(events)

    run_virtually(main())


def test_a_watch_continues_on_the_next_copy_when_one_dies_or_has_jumped() -> None:
    async def main() -> None:
        cluster = _cluster()
        events = cluster.instances["a"].coordinator.watch(STORE)
        await anext(events)
        expected = []
        for number, broken in enumerate("bcbc"):
            instance = cluster.instances[broken]
            instance.is_alive = number > 1
            changes: dict[bytes, bytes | None] = dict.fromkeys(KEYS, b"%d" % number)
            cluster.application.commit({STORE: changes})
            instance.apply(cluster.application.newest, jumps=True)
            cluster.apply_everywhere()
            expected += sorted(changes.items())
            found = await _take(events, len(KEYS))
            assert _pairs(found) == sorted(changes.items())
            instance.is_alive = True
        await _close(events)

    run_virtually(main())


def test_a_watch_waits_while_a_shard_has_no_copy() -> None:
    async def main() -> None:
        cluster = _cluster("a", partitions=1)
        instance = cluster.instances["a"]
        events = instance.coordinator.watch(STORE)
        await anext(events)
        instance.unready.update(instance.kept)
        assert isinstance(await anext(events), Heartbeat)
        instance.unready.clear()
        _commit(cluster, {KEYS[0]: b"1"})
        assert _pairs([await anext(events)]) == [(KEYS[0], b"1")]
        await _close(events)

    run_virtually(main())


def test_a_watch_continues_on_another_copy_if_one_is_cut_off_from_the_log() -> None:
    async def main() -> None:
        cluster = _cluster("abc", partitions=1)
        [placed, *_] = [
            each for shard, each in cluster.placement.items() if shard.group == _group(cluster)
        ]
        cut_off, other = placed
        [asked] = {*"abc"} - {*placed}
        events = cluster.instances[asked].coordinator.watch(STORE)
        await anext(events)
        for number in range(3):
            cluster.application.commit({STORE: {KEYS[0]: b"%d" % number}})
            for name in (asked, other):
                cluster.instances[name].apply(cluster.application.newest)
            await asyncio.sleep(0.5)
            cluster.gossip()
        assert cut_off in cluster.asked

        assert [value for _, value in _pairs(await _take(events, 3))] == [b"0", b"1", b"2"]
        await _close(events)

    run_virtually(main())


def _group(cluster: FakeCluster) -> str:
    return cluster.application.catalog.store(STORE).group


def test_a_watch_of_a_store_that_is_not_ready_or_not_there_is_refused() -> None:
    async def main() -> None:
        cluster = FakeCluster(FakeApplication(), "a")
        coordinator = cluster.instances["a"].coordinator
        with pytest.raises(QueryProblemError) as caught:
            await anext(coordinator.watch(STORE))
        assert caught.value.code is ProblemCode.STORE_NOT_READY
        with pytest.raises(QueryProblemError) as caught:
            coordinator.watch("nothing")
        assert caught.value.code is ProblemCode.UNKNOWN_STORE

    run_virtually(main())


def test_a_snapshot_with_many_changes_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "CHUNK_CHANGES", 7)

    async def main() -> None:
        cluster = _cluster()
        events = cluster.instances["a"].coordinator.watch(STORE)
        await anext(events)
        changes: dict[bytes, bytes | None] = {b"%03d" % number: b"1" for number in range(100)}
        _commit(cluster, changes)

        assert _pairs(await _take(events, 100)) == sorted(changes.items())
        await _close(events)

    run_virtually(main())


def test_a_slow_reader_gets_what_waits_and_is_cut_off() -> None:
    async def main() -> None:
        cluster = _cluster()
        events = cluster.instances["a"].coordinator.watch(STORE)
        await anext(events)
        _commit(cluster, {b"%05d" % number: b"1" for number in range(1_500)})
        await asyncio.sleep(60)

        await _take(events, 1_000)
        with pytest.raises(QueryProblemError) as caught:
            await anext(events)
        assert caught.value.code is ProblemCode.TIMEOUT

    run_virtually(main())


def test_large_events_that_nobody_takes_wait_up_to_a_number_of_bytes() -> None:
    async def main() -> None:
        cluster = _cluster()
        events = cluster.instances["a"].coordinator.watch(STORE)
        await anext(events)
        value = bytes(1 << 20)
        _commit(cluster, {b"%05d" % number: value for number in range(20)})
        await asyncio.sleep(60)

        assert len(_pairs(await _take(events, 7))) == 7
        with pytest.raises(QueryProblemError) as caught:
            await anext(events)
        assert caught.value.code is ProblemCode.TIMEOUT

    run_virtually(main())


def test_an_event_that_is_larger_than_the_buffer_comes_alone() -> None:
    async def main() -> None:
        cluster = _cluster()
        events = cluster.instances["a"].coordinator.watch(STORE)
        await anext(events)
        value = bytes(watching.QUEUED_BYTES + 1)
        _commit(cluster, {KEYS[0]: value, KEYS[1]: value})

        assert _pairs(await _take(events, 2)) == [(KEYS[0], value), (KEYS[1], value)]
        await _close(events)

    run_virtually(main())
