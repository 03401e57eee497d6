"""Pages of a read whose rows are sorted in memory resume where the one before has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace.queries.coordination.local_answers import answer_locally
from headrace.queries.coordination.local_reads import LocalRead, ShardRead
from headrace.queries.copy.memory_database import MemoryView
from headrace.queries.copy.views import MOST_SCANS
from headrace.queries.reads import FetchSessions, FetchWindows, Operation, Row
from headrace.queries.tokens import token_of
from tests.unit.queries.local_instances import FakeInstance, topology_of
from tests.unit.queries.virtual_time import inline
from tests.unit.state.written_stores import written

SORTED = ["window in memory", "window by time", "session in memory"]
PAGE = 3


def copied(case: str) -> FakeInstance:
    """Return an instance with a store of many entries."""
    before = written(case, seed=4)
    instance = FakeInstance(topology_of(before.spec), partitions=1)
    instance.apply({"s": {0: before.records}}, times={"s": before.commits[-1][1]})
    return instance


def pages(
    instance: FakeInstance, operation: Operation, limit: int, at: str | None = None
) -> Iterator[list[Row]]:
    """Yield the rows of a shard, a page at a time."""
    assert instance.record is not None
    token, after, is_complete = at or str(token_of(instance.record)), None, False
    while not is_complete:
        read = LocalRead(reads=(ShardRead("s", 0, operation, after, limit),), at=token)
        answer = asyncio.run(
            answer_locally(instance, read, has_status=False, in_thread=inline)  # type: ignore[arg-type]
        )
        [found] = answer.shards
        yield found.rows
        after, is_complete = found.rows[-1].position if found.rows else after, found.is_complete


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys of all entries that were scanned so far."""
    keys: list[bytes] = []
    scan = MemoryView.scan

    def noting_scan(
        view: MemoryView, start: bytes, end: bytes, /, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for key, value in scan(view, start, end, reverse=reverse):
            keys.append(key)
            yield key, value

    monkeypatch.setattr(MemoryView, "scan", noting_scan)
    return keys


@pytest.mark.parametrize("case", SORTED)
@pytest.mark.parametrize("descending", [False, True])
def test_all_pages_together_scan_the_entries_once(
    case: str, descending: bool, scanned: list[bytes]
) -> None:
    instance = copied(case)
    kind = FetchSessions if case.startswith("session") else FetchWindows
    operation = kind(descending=descending)
    [whole] = pages(instance, operation, 1_000)
    scanned_by_one = len(scanned)
    scanned.clear()

    parts = [*pages(instance, operation, PAGE)]

    assert len(parts) > 5
    assert [row for part in parts for row in part] == whole
    assert len(scanned) <= scanned_by_one + len(parts)


def test_readers_of_the_same_rows_do_not_disturb_each_other() -> None:
    instance = copied("window in memory")
    [whole] = pages(instance, FetchWindows(), 1_000)
    readers = [pages(instance, FetchWindows(), PAGE) for _ in range(MOST_SCANS + 2)]

    found = [*zip(*readers, strict=True)]

    for reader in zip(*found, strict=True):
        assert [row for part in reader for row in part] == whole


def test_no_scan_outlives_its_snapshot() -> None:
    instance = copied("window in memory")
    operation = FetchWindows()
    [shown] = instance.snapshots
    reader = pages(instance, operation, PAGE)
    first = next(reader)
    position = ("s", 0, operation, first[-1].position)

    instance.snapshots.clear()

    assert instance.snapshots.take_scan(shown, position) is None
    instance.snapshots.put_scan(shown, position, iter(first))
    assert instance.snapshots.take_scan(shown, position) is None
