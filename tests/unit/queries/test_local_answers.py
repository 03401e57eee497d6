from __future__ import annotations

import asyncio

import pytest

from headrace.queries.coordination.cursors import Cursor
from headrace.queries.coordination.local_answers import answer_locally
from headrace.queries.coordination.local_changes import answer_changes
from headrace.queries.coordination.local_reads import LocalChanges, LocalRead, ShardRead
from headrace.queries.coordination.read_plans import ReadPlan
from headrace.queries.reads import FetchWindows, ScanKeys
from tests.unit.queries.fake_cluster import STORE, FakeApplication, FakeCluster, FakeInstance
from tests.unit.queries.virtual_time import inline, loop_time, run_virtually

OTHER = "00000000.1"


def _instance() -> FakeInstance:
    cluster = FakeCluster(FakeApplication(1), "a", standbys=0)
    cluster.instances["a"].apply(1, jumps=True)
    cluster.application.commit({STORE: {b"a": b"1"}})
    cluster.apply_everywhere()
    return cluster.instances["a"]


def _token(instance: FakeInstance, number: int) -> str:
    return f"{instance.application.token().history}.{number}"


@pytest.mark.parametrize(
    ("at", "minimum", "expected"),
    [(None, None, "rows"), (2, None, "rows"), (9, None, "behind"), (0, None, "gone"),
     (None, 2, "rows"), (None, 9, "behind"), (OTHER, None, "gone"), (None, OTHER, "gone")],
)  # fmt: skip
def test_an_instance_has_a_snapshot_or_says_why_not(
    at: int | str | None, minimum: int | str | None, expected: str
) -> None:
    async def main() -> None:
        instance = _instance()

        def text(given: int | str | None) -> str | None:
            return _token(instance, given) if isinstance(given, int) else given

        reads = (ShardRead(STORE, 0, ScanKeys()),)
        read = LocalRead(reads=reads, at=text(at), minimum=text(minimum))
        answer = await answer_locally(instance, read, in_thread=inline)
        assert [each.outcome for each in answer.shards] == [expected]
        assert (answer.token is not None) is (expected == "rows")
        assert [row.key for row in answer.shards[0].rows] == [b"a"] * (expected == "rows")

    run_virtually(main())


def test_a_read_without_rows_needs_no_thread() -> None:
    async def main() -> None:
        instance = _instance()

        async def no_thread(function: object) -> object:
            raise AssertionError(function)

        read = LocalRead(reads=(ShardRead(STORE, 0, ScanKeys(), None, 0),))
        answer = await answer_locally(instance, read, in_thread=no_thread)  # type: ignore[arg-type]
        assert [(each.outcome, each.rows) for each in answer.shards] == [("rows", [])]
        scan = LocalRead(reads=(ShardRead(STORE, 0, ScanKeys()),))
        with pytest.raises(AssertionError):
            await answer_locally(instance, scan, in_thread=no_thread)  # type: ignore[arg-type]

    run_virtually(main())


def test_a_shard_that_is_not_ready_or_not_there_has_no_rows() -> None:
    async def main() -> None:
        instance = _instance()
        here, missing = (LocalRead(reads=(ShardRead(STORE, each, ScanKeys()),)) for each in (0, 7))
        instance.unready.update(instance.kept)
        token = _token(instance, 2)
        for read in (here, missing, LocalRead(reads=missing.reads, at=token)):
            answer = await answer_locally(instance, read, in_thread=inline)
            assert [each.outcome for each in answer.shards] == ["not_ready"]

    run_virtually(main())


def test_a_read_waits_for_its_snapshot_as_long_as_it_says() -> None:
    async def main() -> None:
        instance = _instance()
        read = LocalRead(
            reads=(ShardRead(STORE, 0, ScanKeys()),), at=_token(instance, 3), wait_ms=500
        )
        start = loop_time()
        answer = await answer_locally(instance, read, in_thread=inline)
        assert (answer.shards[0].outcome, loop_time() - start) == ("behind", 0.5)
        waiting = asyncio.create_task(answer_locally(instance, read, in_thread=inline))
        await asyncio.sleep(0.1)
        instance.apply(instance.application.commit({}))
        assert (await waiting).shards[0].outcome == "rows"

    run_virtually(main())


@pytest.mark.parametrize(
    ("after", "at", "expected"),
    [(1, None, "changes"), (2, None, "none"), (9, None, "none"), (0, None, "gap"),
     (1, 2, "changes"), (1, 1, "gap"), (1, 9, "none"), (1, 0, "gap"), (OTHER, None, "gap"),
     (1, OTHER, "gap")],
)  # fmt: skip
def test_changes_follow_a_token_or_there_is_a_gap(
    after: int | str, at: int | str | None, expected: str
) -> None:
    async def main() -> None:
        instance = _instance()
        request = LocalChanges(
            store=STORE,
            partitions=(0,),
            after=_token(instance, after) if isinstance(after, int) else after,
            at=_token(instance, at) if isinstance(at, int) else at,
        )
        answer = await answer_changes(instance, request, in_thread=inline)
        assert answer.outcome == expected
        instance.unready.update(instance.kept)
        unready = await answer_changes(instance, request, in_thread=inline)
        assert unready.outcome == ("not_ready" if at is None else expected)

    run_virtually(main())


def test_a_message_that_makes_no_sense_is_answered_by_a_problem() -> None:
    async def main() -> None:
        instance = _instance()
        for read, code in (
            (LocalRead(at="x"), "BAD_REQUEST"),
            (LocalRead(reads=(ShardRead("nothing", 0, ScanKeys()),)), "UNKNOWN_STORE"),
            (LocalRead(reads=(ShardRead(STORE, 0, FetchWindows()),)), "WRONG_STORE_KIND"),
        ):
            answer = await answer_locally(instance, read, in_thread=inline)
            assert answer.problem is not None
            assert (answer.problem.code, answer.shards) == (code, [])
        request = LocalChanges(store="nothing", partitions=(0,), after=_token(instance, 1))
        changes = await answer_changes(instance, request, in_thread=inline)
        assert changes.problem is not None
        assert changes.problem.code == "UNKNOWN_STORE"

    run_virtually(main())


def test_windows_resume_in_the_partition_of_the_last_row_and_continue_in_the_next() -> None:
    async def main() -> None:
        cluster = FakeCluster(FakeApplication(3), "a", standbys=0)
        cluster.apply_everywhere()
        instance = cluster.instances["a"]
        operation = FetchWindows()
        behind = Cursor(str(cluster.application.token()), STORE, operation, 1, b"place")

        store = instance.catalog.store(STORE)
        plan = ReadPlan(instance, store, operation, 10, behind)
        wanted = plan(cluster.application.records[1])
        assert [(each.shard.partition, each.read.after) for each in wanted] == [
            (1, b"place"),
            (2, None),
        ]

    run_virtually(main())
