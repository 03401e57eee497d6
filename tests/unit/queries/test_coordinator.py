from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace as replace_status

from headrace.brokers.log import TopicPartition
from headrace.queries.coordination.answers import NEWEST, Bound
from headrace.queries.coordination.cursors import decode_cursor
from headrace.queries.copy.layout import Shard
from headrace.queries.members import shard_name
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import FetchWindows, GetKey, Operation, ScanKeys
from headrace.queries.tokens import Token
from headrace.serdes.partitioner import partition_for_key
from tests.unit.queries.fake_cluster import (
    OTHER_STORE,
    STORE,
    FakeApplication,
    FakeCluster,
    FakeInstance,
)
from tests.unit.queries.virtual_time import loop_time, run_virtually

T = TypeVar("T")
KEYS = [f"key-{number:02}".encode() for number in range(40)]


def _cluster(names: str = "abc", *, standbys: int = 1, partitions: int = 3) -> FakeCluster:
    application = FakeApplication(partitions)
    application.commit({STORE: dict.fromkeys(KEYS, b"1"), OTHER_STORE: {b"a": b"x"}})
    cluster = FakeCluster(application, names, standbys=standbys)
    cluster.apply_everywhere()
    return cluster


def _shard_of(cluster: FakeCluster, key: bytes, store: str = STORE) -> Shard:
    group = cluster.application.catalog.store(store).group
    return Shard(group, partition_for_key(key, cluster.application.partitions))


def _elsewhere(cluster: FakeCluster, key: bytes) -> FakeInstance:
    """Return an instance that does not have the shard of a key."""
    shard = _shard_of(cluster, key)
    return next(each for each in cluster.instances.values() if shard not in each.kept)


async def _problem(read: Coroutine[Any, Any, T]) -> ProblemCode:
    with pytest.raises(QueryProblemError) as caught:
        await read
    return caught.value.code


def test_any_instance_answers_for_every_key_with_the_same_token() -> None:
    async def main() -> None:
        cluster = _cluster()
        for instance in cluster.instances.values():
            for key in KEYS:
                answer = await instance.coordinator.read_key(STORE, key)
                assert [(row.key, row.value) for row in answer.rows] == [(key, b"1")]
                assert answer.token == cluster.application.token()
                assert answer.record == cluster.application.records[2]
            missing = await instance.coordinator.read_key(STORE, b"missing")
            assert missing.rows == []

    run_virtually(main())


def test_the_fast_way_answers_from_a_ready_copy_only() -> None:
    async def main() -> None:
        cluster = _cluster()
        key = KEYS[0]
        holder = cluster.instances[cluster.placement[_shard_of(cluster, key)][0]]

        found = holder.coordinator.newest_local(STORE, key)
        assert found is not None
        assert (found[0], found[2].record.snapshot) == (b"1", 2)
        missing = next(
            each
            for each in (b"missing-%d" % number for number in range(99))
            if _shard_of(cluster, each) == _shard_of(cluster, key)
        )
        nothing = holder.coordinator.newest_local(STORE, missing)
        assert nothing is not None
        assert nothing[:2] == (None, None)
        assert _elsewhere(cluster, key).coordinator.newest_local(STORE, key) is None
        holder.unready.add(_shard_of(cluster, key))
        assert holder.coordinator.newest_local(STORE, key) is None
        with pytest.raises(QueryProblemError, match="no queryable store 'coun'"):
            holder.coordinator.newest_local("coun", key)

    run_virtually(main())


def test_pages_of_one_read_are_of_one_snapshot_while_the_application_continues() -> None:
    async def main() -> None:
        cluster = _cluster()
        names = [*cluster.instances]
        page = await cluster.instances["a"].coordinator.page(STORE, ScanKeys(), limit=7)
        rows, token = [*page.rows], page.token
        number = 0
        while page.next is not None:
            cluster.application.commit({STORE: {KEYS[number]: None, b"new": b"%d" % number}})
            cluster.apply_everywhere()
            number += 1
            instance = cluster.instances[names[number % 3]]
            page = await instance.coordinator.page(STORE, None, limit=7, cursor=page.next)
            assert page.token == token
            rows.extend(page.rows)

        assert [row.key for row in rows] == KEYS
        assert number == 5

    run_virtually(main())


@pytest.mark.parametrize("descending", [False, True])
def test_a_range_comes_in_the_order_of_its_keys(descending: bool) -> None:
    async def main() -> None:
        cluster = _cluster()
        scan = ScanKeys(start=KEYS[3], end=KEYS[20], descending=descending)
        expected = KEYS[3:21][:: -1 if descending else 1]
        coordinator = cluster.instances["b"].coordinator

        page = await coordinator.page(STORE, scan, limit=10)
        assert [row.key for row in page.rows] == expected[:10]
        page = await coordinator.page(STORE, scan, limit=10, cursor=page.next)
        assert [row.key for row in page.rows] == expected[10:]
        assert page.next is None
        _, _, rows = await coordinator.rows(STORE, scan)
        assert [row.key async for row in rows] == expected

    run_virtually(main())


def test_a_key_that_lies_in_two_shards_is_not_lost_between_pages() -> None:
    async def main() -> None:
        application = FakeApplication(2)
        catalog = application.catalog
        store = replace(catalog.store(STORE), has_key_partitions=False)
        application.catalog = replace(catalog, stores={**catalog.stores, STORE: store})
        cluster = FakeCluster(application, "a", standbys=0)
        changes = application.shard_changes
        application.shard_changes = lambda shard, numbers: {  # type: ignore[method-assign]
            name: [each for one in (0, 1) for each in changes(Shard(shard.group, one), numbers).get(
                TopicPartition(name.topic, one), [])]
            for name in changes(shard, numbers)
        }  # fmt: skip
        application.commit({STORE: {b"a": b"1", b"b": b"2", b"c": b"3"}})
        cluster.apply_everywhere()
        coordinator = cluster.instances["a"].coordinator
        for descending in (False, True):
            scan = ScanKeys(descending=descending)
            found: list[bytes] = []
            cursor = None
            while True:
                page = await coordinator.page(STORE, scan, limit=1, cursor=cursor)
                found.extend(row.key for row in page.rows)
                cursor = page.next
                if cursor is None:
                    break
            assert found == sorted([b"a", b"a", b"b", b"b", b"c", b"c"], reverse=descending)
        assert len((await coordinator.read_key(STORE, b"a")).rows) == 2

    run_virtually(main())


def test_several_reads_have_one_token_even_if_copies_differ() -> None:
    async def main() -> None:
        cluster = _cluster(standbys=0)
        cluster.application.commit({STORE: {KEYS[0]: b"2"}, OTHER_STORE: {b"a": b"y"}})
        cluster.instances["a"].apply(3)
        cluster.instances["b"].apply(3)
        cluster.gossip()
        reads: list[tuple[str, Operation]] = [
            (STORE, ScanKeys()),
            (OTHER_STORE, GetKey(b"a")),
            (STORE, GetKey(KEYS[0])),
        ]

        answers = await cluster.instances["a"].coordinator.read_many(reads)
        assert answers.token.snapshot == 2
        assert [len(rows) for rows in answers.rows] == [len(KEYS), 1, 1]
        assert answers.rows[1][0].value == b"x"
        assert answers.rows[2][0].value == b"1"
        code = await _problem(cluster.instances["a"].coordinator.read_many(reads, limit=39))
        assert code is ProblemCode.LIMIT_TOO_LARGE

    run_virtually(main())


def test_a_dead_member_is_passed_over_and_then_asked_last() -> None:
    async def main() -> None:
        cluster = _cluster()
        key = KEYS[0]
        reader = _elsewhere(cluster, key)
        first, second = cluster.placement[_shard_of(cluster, key)]
        cluster.instances[first].is_alive = False
        cluster.asked.clear()

        answer = await reader.coordinator.read_key(STORE, key)
        assert len(answer.rows) == 1
        assert cluster.asked[:2] == [first, second]
        cluster.asked.clear()
        await reader.coordinator.read_key(STORE, key)
        assert first not in cluster.asked

    run_virtually(main())


def test_a_shard_without_a_ready_copy_is_a_problem_at_once_and_never_a_part() -> None:
    async def main() -> None:
        cluster = _cluster()
        shard = _shard_of(cluster, KEYS[0])
        for instance in cluster.instances.values():
            instance.unready.add(shard)
        cluster.gossip()
        for instance in cluster.instances.values():
            coordinator = instance.coordinator
            for read in (
                coordinator.read_key(STORE, KEYS[0]),
                coordinator.page(STORE, ScanKeys()),
                coordinator.pin([STORE]),
            ):
                assert await _problem(read) is ProblemCode.STORE_NOT_READY
        assert loop_time() < 0.1

    run_virtually(main())


def test_instances_that_lack_a_shard_do_not_send_a_read_to_each_other_again_and_again() -> None:
    async def main() -> None:
        cluster = _cluster("ab", standbys=0)
        shard = _shard_of(cluster, KEYS[0])
        first, second = cluster.instances.values()
        for instance, other in ((first, second), (second, first)):
            # Each has heard that the other has a ready copy, and neither has.
            instance.unready.add(shard)
            status = other.status()
            everything = [*status.ready, shard_name(shard)]
            instance.note_status(replace_status(status, ready=tuple(everything)))
        cluster.asked.clear()

        for instance in (first, second):
            read = instance.coordinator.read_key(STORE, KEYS[0])
            assert await _problem(read) is ProblemCode.STORE_NOT_READY
            assert await _problem(instance.coordinator.page(STORE, ScanKeys())) is (
                ProblemCode.STORE_NOT_READY
            )

        assert loop_time() < 10
        assert len(cluster.asked) < 40

    run_virtually(main())


def test_all_copies_of_a_shard_gone_is_a_problem_within_two_seconds() -> None:
    async def main() -> None:
        cluster = _cluster()
        reader = _elsewhere(cluster, KEYS[0])
        for name in cluster.placement[_shard_of(cluster, KEYS[0])]:
            cluster.instances[name].is_alive = False

        for read in (
            reader.coordinator.read_key(STORE, KEYS[0]),
            reader.coordinator.page(STORE, ScanKeys()),
            reader.coordinator.read_key(STORE, KEYS[0], Bound(at=cluster.application.token())),
        ):
            start = loop_time()
            assert await _problem(read) is ProblemCode.STORE_NOT_READY
            assert loop_time() - start < 3

    run_virtually(main())


def test_a_pinned_read_is_the_same_everywhere_until_its_snapshot_is_gone() -> None:
    async def main() -> None:
        cluster = _cluster()
        token = cluster.application.token()
        cluster.application.commit({STORE: {KEYS[0]: b"2"}})
        cluster.apply_everywhere()
        for instance in cluster.instances.values():
            answer = await instance.coordinator.read_key(STORE, KEYS[0], Bound(at=token))
            assert (answer.rows[0].value, answer.token) == (b"1", token)
        for name in cluster.placement[_shard_of(cluster, KEYS[0])]:
            cluster.instances[name].restart()
        cluster.gossip()
        for instance in cluster.instances.values():
            coordinator = instance.coordinator
            for gone in (token, Token("00000000", 2)):
                code = await _problem(coordinator.read_key(STORE, KEYS[0], Bound(at=gone)))
                assert code is ProblemCode.SNAPSHOT_GONE

    run_virtually(main())


def test_a_pinned_read_waits_for_a_snapshot_that_is_about_to_come() -> None:
    async def main() -> None:
        cluster = _cluster()
        cluster.application.commit({STORE: {KEYS[0]: b"2"}})
        token = cluster.application.token()
        reads = [
            asyncio.create_task(each.coordinator.read_key(STORE, KEYS[0], Bound(at=token)))
            for each in cluster.instances.values()
        ]
        await asyncio.sleep(0.3)
        assert not any(read.done() for read in reads)
        cluster.apply_everywhere()

        assert {(await read).rows[0].value for read in reads} == {b"2"}
        assert {each.listeners for each in cluster.instances.values()} == {0}
        future = Bound(at=Token(token.history, 99))
        code = await _problem(cluster.instances["a"].coordinator.read_key(STORE, KEYS[0], future))
        assert code is ProblemCode.STORE_NOT_READY

    run_virtually(main())


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_minimum_waits_as_long_as_it_may_and_no_answer_is_older(is_merged: bool) -> None:
    async def main() -> None:
        cluster = _cluster()
        cluster.application.commit({STORE: {KEYS[0]: b"2"}})
        token = cluster.application.token()
        scan = ScanKeys(end=KEYS[0]) if is_merged else GetKey(KEYS[0])
        for instance in cluster.instances.values():
            coordinator = instance.coordinator
            bound = Bound(minimum=token)
            assert await _problem(coordinator.page(STORE, scan, bound)) is (
                ProblemCode.NOT_UP_TO_BOUND
            )
            gone = Bound(minimum=Token("00000000", 1))
            assert await _problem(coordinator.page(STORE, scan, gone)) is ProblemCode.SNAPSHOT_GONE
        waiting = Bound(minimum=token, wait_ms=5_000)
        reads = [
            asyncio.create_task(each.coordinator.page(STORE, scan, waiting))
            for each in cluster.instances.values()
        ]
        await asyncio.sleep(3)
        assert not any(read.done() for read in reads)
        cluster.apply_everywhere()
        for read in reads:
            page = await read
            assert (page.token, page.rows[0].value) == (token, b"2")

    run_virtually(main())


def test_own_writes_are_reflected_or_the_read_says_that_they_are_not() -> None:
    async def main() -> None:
        cluster = _cluster()
        coordinator = _elsewhere(cluster, KEYS[0]).coordinator
        written = {TopicPartition("numbers", 1): 2}

        code = await _problem(coordinator.read_key(STORE, KEYS[0], Bound(position=written)))
        assert code is ProblemCode.NOT_UP_TO_BOUND
        other = Bound(position={TopicPartition("others", 0): 1}, wait_ms=1_000)
        code = await _problem(coordinator.read_key(STORE, KEYS[0], other))
        assert code is ProblemCode.NOT_AN_INPUT
        waiting = Bound(position=written, wait_ms=1_000)
        read = asyncio.create_task(coordinator.read_key(STORE, KEYS[0], waiting))
        await asyncio.sleep(0.2)
        for value in (b"2", b"3"):
            cluster.application.commit({STORE: {KEYS[0]: value}})
            cluster.apply_everywhere()
        assert (await read).token.snapshot >= 3
        now = Bound(position=written)
        assert (await coordinator.page(STORE, ScanKeys(), now)).token.snapshot >= 3
        more = Bound(position=written, minimum=Token("00000000", 9))
        assert await _problem(coordinator.page(STORE, ScanKeys(), more)) is (
            ProblemCode.SNAPSHOT_GONE
        )

    run_virtually(main())


def test_one_instance_never_goes_back_in_a_shard_when_another_copy_answers() -> None:
    async def main() -> None:
        cluster = _cluster()
        key = KEYS[0]
        reader = _elsewhere(cluster, key)
        first, second = cluster.placement[_shard_of(cluster, key)]
        cluster.application.commit({STORE: {key: b"2"}})
        cluster.instances[first].apply(3)
        cluster.gossip()
        assert (await reader.coordinator.read_key(STORE, key)).token.snapshot == 3
        cluster.instances[first].is_alive = False

        read = asyncio.create_task(reader.coordinator.read_key(STORE, key))
        await asyncio.sleep(1)
        assert not read.done()
        cluster.instances[second].apply(3)
        assert (await read).rows[0].value == b"2"

    run_virtually(main())


def test_a_copy_that_jumped_over_the_token_leads_to_a_newer_one() -> None:
    async def main() -> None:
        cluster = _cluster(standbys=0)
        for value in (b"2", b"3"):
            cluster.application.commit({STORE: dict.fromkeys(KEYS, value)})
        for name, numbers in {"a": (3, 4), "b": (3, 4), "c": (4,)}.items():
            for number in numbers:
                cluster.instances[name].apply(number)
        cluster.instances["a"].note_status(cluster.instances["b"].status())
        stale = cluster.instances["c"].status()
        stale.shards.update(dict.fromkeys(stale.shards, 3))
        cluster.instances["a"].note_status(stale)

        page = await cluster.instances["a"].coordinator.page(STORE, ScanKeys())
        assert page.token.snapshot == 4
        assert {row.value for row in page.rows} == {b"3"}

    run_virtually(main())


def test_partitions_are_asked_from_the_snapshot_on_that_has_them() -> None:
    async def main() -> None:
        cluster = _cluster("ab", partitions=1)
        application = cluster.application
        old = application.token()
        application.partitions = 2
        added = [b"new-%d" % number for number in range(9)]
        application.commit({STORE: dict.fromkeys(added, b"1")})
        cluster.instances["b"].kept = application.shards()
        cluster.instances["b"].apply(3)
        cluster.gossip()

        for name, bound, expected in (
            ("a", Bound(), KEYS),
            ("a", Bound(minimum=application.token()), KEYS + added),
            ("b", Bound(), KEYS + added),
            ("b", Bound(at=old), KEYS),
            ("a", Bound(at=application.token()), KEYS + added),
        ):
            coordinator = cluster.instances[name].coordinator
            _, _, rows = await coordinator.rows(STORE, ScanKeys(), bound)
            assert [row.key async for row in rows] == expected

    run_virtually(main())


def test_an_instance_without_a_record_or_with_a_problem_says_so() -> None:
    async def main() -> None:
        cluster = FakeCluster(FakeApplication(), "a", standbys=0)
        instance = cluster.instances["a"]
        read = instance.coordinator.read_key(STORE, b"k")
        assert await _problem(read) is ProblemCode.STORE_NOT_READY
        assert instance.coordinator.newest_local(STORE, b"k") is None
        instance.given_problem = QueryProblemError(ProblemCode.OTHER_PROGRAM, "another")
        read = instance.coordinator.read_key(STORE, b"k")
        assert await _problem(read) is ProblemCode.OTHER_PROGRAM

    run_virtually(main())


def test_reads_that_no_copy_can_answer_are_refused() -> None:
    async def main() -> None:
        cluster = _cluster()
        coordinator = cluster.instances["a"].coordinator
        page = await coordinator.page(STORE, ScanKeys(), limit=1)
        assert page.next is not None
        assert decode_cursor(page.next).token == str(page.token)

        for read, code in (
            (coordinator.page("nothing", ScanKeys()), ProblemCode.UNKNOWN_STORE),
            (coordinator.page(STORE, FetchWindows(b"a")), ProblemCode.WRONG_STORE_KIND),
            (coordinator.page(STORE, FetchWindows()), ProblemCode.WRONG_STORE_KIND),
            (coordinator.page(STORE, None), ProblemCode.BAD_REQUEST),
            (coordinator.page(STORE, ScanKeys(), limit=0), ProblemCode.BAD_REQUEST),
            (coordinator.page(STORE, None, cursor="x"), ProblemCode.BAD_REQUEST),
            (coordinator.page(OTHER_STORE, None, cursor=page.next), ProblemCode.BAD_REQUEST),
            (coordinator.page(STORE, GetKey(b""), cursor=page.next), ProblemCode.BAD_REQUEST),
        ):
            assert await _problem(read) is code
        cluster.application.commit({})
        cluster.apply_everywhere()
        for instance in cluster.instances.values():
            instance.restart()
        cluster.gossip()
        expired = cluster.instances["a"].coordinator.page(STORE, None, cursor=page.next)
        assert await _problem(expired) is ProblemCode.CURSOR_EXPIRED

    run_virtually(main())


def test_an_open_cursor_and_a_pin_keep_their_snapshot_for_a_minute() -> None:
    async def main() -> None:
        cluster = _cluster()
        page = await cluster.instances["a"].coordinator.page(STORE, ScanKeys(), limit=3)
        for _ in range(35):
            await asyncio.sleep(1)
            cluster.application.commit({STORE: {KEYS[0]: b"2"}})
            cluster.apply_everywhere()

        again = await cluster.instances["b"].coordinator.page(
            STORE, None, limit=100, cursor=page.next
        )
        assert [row.key for row in again.rows] == KEYS[3:]
        token, _ = await cluster.instances["a"].coordinator.pin([STORE, OTHER_STORE])
        assert token == cluster.application.token()
        for _ in range(35):
            await asyncio.sleep(1)
            cluster.application.commit({STORE: {KEYS[0]: b"3"}})
            cluster.apply_everywhere()
        expired = cluster.instances["b"].coordinator.page(STORE, None, limit=1, cursor=page.next)
        assert await _problem(expired) is ProblemCode.CURSOR_EXPIRED
        pinned = Bound(at=token)
        answer = await cluster.instances["c"].coordinator.read_key(STORE, KEYS[0], pinned)
        assert answer.rows[0].value == b"2"

    run_virtually(main())


def _behind() -> tuple[FakeCluster, FakeInstance]:
    """Return an instance with a copy of all shards, one snapshot behind the other instance."""
    cluster = _cluster("ab")
    cluster.application.commit({STORE: {KEYS[0]: b"2"}})
    cluster.instances["b"].apply(3)
    cluster.gossip()
    return cluster, cluster.instances["a"]


def test_a_pin_takes_the_own_copy_if_that_is_ready_and_no_older_than_earlier_answers() -> None:
    async def main() -> None:
        cluster, instance = _behind()
        new = cluster.application.token()
        old = replace(new, snapshot=2)

        async def pinned(bound: Bound = NEWEST) -> Token:
            token, record = await instance.coordinator.pin([STORE, OTHER_STORE], bound)
            assert record == cluster.application.records[token.snapshot]
            return token

        assert await pinned() == old
        assert await pinned(Bound(minimum=old)) == old
        instance.unready.add(_shard_of(cluster, KEYS[0]))
        assert await pinned() == new
        instance.unready.clear()
        assert await pinned() == new
        assert await pinned(Bound(at=old)) == old

    run_virtually(main())


def test_a_pin_with_a_minimum_does_not_take_an_older_copy_of_its_own() -> None:
    async def main() -> None:
        cluster, instance = _behind()
        new = cluster.application.token()
        assert (await instance.coordinator.pin([STORE], Bound(minimum=new)))[0] == new
        elsewhen = instance.coordinator.pin([STORE], Bound(minimum=Token("00000000", 1)))
        assert await _problem(elsewhen) is ProblemCode.SNAPSHOT_GONE

    run_virtually(main())


def test_a_stream_of_many_rows_survives_the_death_of_its_copy() -> None:
    async def main() -> None:
        application = FakeApplication()
        keys = [b"%06d" % number for number in range(5_000)]
        application.commit({STORE: dict.fromkeys(keys, b"v")})
        cluster = FakeCluster(application)
        cluster.apply_everywhere()
        reader = cluster.instances["a"]
        token, record, batches = await reader.coordinator.row_batches(STORE, ScanKeys())
        found: list[bytes] = []
        async for batch in batches:
            found.extend(row.key for row in batch)
            cluster.instances["b"].is_alive = len(found) < 2_000
            cluster.application.commit({STORE: {keys[-1]: None}})
            cluster.apply_everywhere()

        assert found == keys
        assert (token.snapshot, record.snapshot) == (2, 2)

    run_virtually(main())
