"""A store over a view reads as the store of the task that wrote its changelog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.durations import MAX_MS
from headrace.queries.copy.disk_database import DiskDatabase
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import (
    FetchSessions,
    FetchVersions,
    FetchWindows,
    GetKey,
    Operation,
    Row,
    ScanKeys,
)
from headrace.queries.store_views import (
    changed_rows,
    get_entry,
    open_store,
    read_batches,
    read_rows,
)
from headrace.state.store_types.key_value import KeyValueType
from headrace.state.store_types.window import SessionType, WindowType
from tests.unit.queries.copied_stores import CopiedStore, copied
from tests.unit.state.written_stores import CASES, KEYS, Written, compacted, written

TIMES = [(0, MAX_MS), (100_000, 400_000), (300_000, 300_000), (400_000, 100_000)]


def scans(_: Any) -> Iterator[Operation]:
    for descending in (False, True):
        yield ScanKeys(descending=descending)
        for key in KEYS:
            yield ScanKeys(start=key, descending=descending)
            yield ScanKeys(end=key, descending=descending)
            yield ScanKeys(prefix=key, descending=descending)
            yield ScanKeys(start=b"a", end=key, prefix=b"a", descending=descending)


def windows(_: Any) -> Iterator[Operation]:
    for descending in (False, True):
        for first, last in TIMES:
            yield FetchWindows(None, None, first, last, descending)
            for key in KEYS:
                yield FetchWindows(key, None, first, last, descending)
                yield FetchWindows(key, b"ab", first, last, descending)
                yield FetchWindows(None, key, first, last, descending)


def sessions(_: Any) -> Iterator[Operation]:
    for descending in (False, True):
        for earliest, latest in TIMES:
            yield FetchSessions(None, None, earliest, latest, descending)
            for key in KEYS:
                yield FetchSessions(key, None, earliest, latest, descending)
                yield FetchSessions(b"", key, earliest, latest, descending)


def versions(_: Any) -> Iterator[Operation]:
    yield from scans(None)
    for key in KEYS:
        yield GetKey(key)
        yield from (GetKey(key, time) for time in range(0, 600_000, 50_000))
        for ascending in (False, True):
            yield from (FetchVersions(key, first, last, ascending) for first, last in TIMES)


def operations(copy: CopiedStore) -> list[Operation]:
    """Return the operations of a kind of store."""
    store_type = copy.store.type
    if isinstance(store_type, KeyValueType):
        return [*scans(None), *map(GetKey, KEYS)]
    if isinstance(store_type, WindowType):
        return [*windows(None)]
    return [*(sessions if isinstance(store_type, SessionType) else versions)(None)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_each_snapshot_reads_as_the_store_did_then(case: str, seed: int) -> None:
    reads, before = CASES[case][2], written(case, seed)

    copy = copied(before)

    assert [*reads(open_store(copy.snapshots[-1], copy.store, 0))] == [*reads(before.store)]
    for shown, (count, times) in zip(copy.snapshots, before.commits, strict=True):
        then = before.read_back(before.records[:count], times)
        assert [*reads(open_store(shown, copy.store, 0))] == [*reads(then)]


@pytest.mark.parametrize("case", CASES)
def test_a_copy_on_disk_reads_the_same(case: str, tmp_path: Path) -> None:
    reads, before = CASES[case][2], written(case, seed=7)
    database = DiskDatabase(tmp_path / "copy")

    copy = copied(before, database)

    assert [*reads(open_store(copy.snapshots[-1], copy.store, 0))] == [*reads(before.store)]
    for operation in operations(copy):
        rows = [*read_rows(copy.snapshots[-1], copy.store, 0, operation)]
        assert rows == [*read_rows(copied(before).snapshots[-1], copy.store, 0, operation)]


@pytest.mark.parametrize("case", CASES)
def test_batches_have_the_columns_of_the_rows(case: str) -> None:
    copy = copied(written(case, seed=5))
    shown = copy.snapshots[-1]

    for operation in operations(copy):
        found: list[tuple[object, ...]] = []
        for batch in read_batches(shown, copy.store, 0, operation):
            columns = batch.keys(), batch.values(), batch.timestamps(), batch.starts(), batch.ends()
            found += zip(*columns, strict=True)
            assert len(batch) == len(batch.keys())
        assert found == [row[:5] for row in read_rows(shown, copy.store, 0, operation)]


@pytest.mark.parametrize("case", [case for case in CASES if case != "versioned_key_value"])
def test_a_copy_of_a_compacted_changelog_reads_the_same(case: str) -> None:
    reads, before = CASES[case][2], written(case, seed=9)
    copy = CopiedStore(before.spec)

    copy.apply(before.records[:50], {})
    shown = copy.apply(compacted(before.records), before.commits[-1][1], wipes=True)

    assert [*reads(open_store(shown, copy.store, 0))] == [*reads(before.store)]


def expected_rows(store: Any, copy: CopiedStore, operation: Operation) -> list[Any]:
    """Return what the methods of the engine's store return for an operation."""
    match operation:
        case ScanKeys(start, end, None, descending):
            return [*(store.reverse_range if descending else store.range)(start, end)]
        case ScanKeys(None, None, bytes() as prefix, False):
            return [*store.prefix_scan(prefix)]
        case GetKey(key, None):
            found = store.get(key)
            return [] if found is None else [(key, found)]
        case FetchWindows(bytes() as key, None, first, last, descending):
            return [*(store.backward_fetch if descending else store.fetch)(key, first, last)]
        case FetchWindows(key, end_key, first, last, descending):
            fetch = store.backward_fetch_range if descending else store.fetch_range
            return [*fetch(key, end_key, first, last)]
        case FetchSessions(bytes() as key, None, earliest, latest, descending):
            find = store.backward_find_sessions if descending else store.find_sessions
            return [*find(key, earliest, latest)]
    return [None]


def as_shown(row: Row, store: Any, copy: CopiedStore, operation: Operation) -> Any:
    """Return a row as the engine's store shows it."""
    value: Any = copy.store.value.deserialize(row.value)
    if copy.store.type.has_timestamps:
        value = (value, row.timestamp)
    if row.start is None:
        return row.key, value
    if isinstance(operation, FetchWindows) and operation.end_key is None and operation.key:
        return row.start, value
    return (row.key, row.start, row.end), value


def plain(found: Any) -> Any:
    """Return a result of a store with windows as tuples."""
    key, value = found
    return ((key.key, key.window.start, key.window.end) if hasattr(key, "window") else key), value


@pytest.mark.parametrize("case", [case for case in CASES if case != "versioned_key_value"])
def test_rows_are_what_the_methods_of_the_store_return(case: str) -> None:
    before = written(case, seed=4)
    copy = copied(before)
    compared = 0

    for operation in operations(copy):
        expected = expected_rows(before.store, copy, operation)
        if expected != [None]:
            rows = read_rows(copy.snapshots[-1], copy.store, 0, operation)
            shown = [as_shown(row, before.store, copy, operation) for row in rows]
            is_one_key = isinstance(operation, FetchWindows) and operation.key == b""
            assert len(shown) == len(expected)
            if not is_one_key:
                assert shown == [*map(plain, expected)]
                compared += len(shown)
    assert compared > 30


def test_rows_of_versions_are_those_that_were_valid() -> None:
    before = written("versioned_key_value", seed=4)
    copy = copied(before)
    [*_, shown] = copy.snapshots
    oldest = before.times.time - before.spec.retention_ms
    for key in KEYS:
        rows = [*read_rows(shown, copy.store, 0, FetchVersions(key))]
        assert [*read_rows(shown, copy.store, 0, FetchVersions(key, ascending=True))] == rows[::-1]
        for time in range(oldest, before.times.time + 2_000, 500):
            expected = before.store.get(key, time)
            valid = [
                row
                for row in rows
                if (row.start or 0) <= time and (row.end is None or time < row.end)
            ]
            at_time = [*read_rows(shown, copy.store, 0, FetchVersions(key, time, time))]
            [*as_of] = read_rows(shown, copy.store, 0, GetKey(key, time))
            assert at_time == valid
            assert [row[:5] for row in as_of] == [row[:5] for row in valid]
            found = [(copy.store.value.deserialize(row.value), row.timestamp) for row in valid]
            assert found == ([] if expected is None else [expected[:2]])


@pytest.mark.parametrize("case", CASES)
def test_a_read_resumes_behind_any_row(case: str) -> None:
    copy = copied(written(case, seed=5))
    resumed = 0

    for operation in operations(copy):
        rows = [*read_rows(copy.snapshots[-1], copy.store, 0, operation)]
        for number, row in enumerate(rows[:20]):
            after = read_rows(copy.snapshots[-1], copy.store, 0, operation, row.position)
            assert [*after] == rows[number + 1 :]
            resumed += 1
    assert resumed > 10


@pytest.mark.parametrize("case", CASES)
def test_changes_make_the_next_snapshot_of_the_one_before(case: str) -> None:
    copy = copied(written(case, seed=6))
    everything: Operation = ScanKeys()
    if isinstance(copy.store.type, WindowType):
        everything = FetchWindows()
    elif isinstance(copy.store.type, SessionType):
        everything = FetchSessions()
    state: dict[bytes, Row] = {}

    for shown in copy.snapshots:
        changes = [*changed_rows(shown, copy.store, 0)]
        for number, (changed, row) in enumerate(changes):
            assert [*changed_rows(shown, copy.store, 0, changed.position)] == changes[number + 1 :]
            if row is None:
                state.pop(changed.position, None)
            else:
                assert (row.key, row.start if changed.start is not None else None) == changed[:2]
                state[changed.position] = row
        rows = [*read_rows(shown, copy.store, 0, everything)]
        seen = {row.position for row in rows}
        assert all(state[_changed_position(copy, row)] == row for row in rows)
        # The others have expired, which changes do not tell.
        assert copy.store.type.has_segments or len(seen) == len(state)


def _changed_position(copy: CopiedStore, row: Row) -> bytes:
    return b"\xff" * 8 + row.key if copy.store.type.is_versioned else row.position


@pytest.mark.parametrize("case", CASES)
def test_a_point_read_finds_what_the_store_has(case: str) -> None:
    before = written(case, seed=8)
    copy = copied(before)
    [*_, shown] = copy.snapshots
    if copy.store.type.has_segments and copy.store.type.replaces:
        with pytest.raises(QueryProblemError, match="does not have one value per key") as error:
            get_entry(shown, copy.store, 0, b"a")
        assert error.value.code is ProblemCode.WRONG_STORE_KIND
        return
    found = {key: get_entry(shown, copy.store, 0, key) for key in KEYS}
    for key, entry in found.items():
        stored = before.store.get(key)
        if entry is None:
            assert stored is None
        else:
            value = copy.store.value.deserialize(entry[0])
            assert stored in (value, (value, entry[1]), (value, entry[1], None))
            assert (entry[1] is None) == (copy.store.kind in ("key_value", "lru_map"))
    assert any(found.values())


@pytest.mark.parametrize(
    ("case", "operation", "lacks"),
    [
        ("window", GetKey(b"a"), "one value per key"),
        ("session", ScanKeys(), "one value per key"),
        ("key_value", FetchWindows(), "windows"),
        ("window", FetchSessions(), "sessions"),
        ("session", FetchVersions(b"a"), "versions"),
        ("lru_map", GetKey(b"a", 5), "versions"),
    ],
)
def test_a_store_of_another_kind_refuses(case: str, operation: Operation, lacks: str) -> None:
    copy = CopiedStore(CASES[case][0])
    shown = copy.apply([], {})

    with pytest.raises(QueryProblemError, match=f"does not have {lacks}") as error:
        read_rows(shown, copy.store, 0, operation)

    assert error.value.code is ProblemCode.WRONG_STORE_KIND


def test_a_shard_that_the_snapshot_does_not_have_refuses() -> None:
    copy = CopiedStore(CASES["key_value"][0])
    shown = copy.apply([], {})

    for read in (
        lambda: get_entry(shown, copy.store, 1, b"a"),
        lambda: open_store(shown, copy.store, 1),
        lambda: read_rows(shown, copy.store, 1, ScanKeys()),
        lambda: changed_rows(shown, copy.store, 1),
    ):
        with pytest.raises(QueryProblemError, match="does not have partition 1 of") as error:
            read()
        assert error.value.code is ProblemCode.STORE_NOT_READY


def test_a_raw_store_has_bytes() -> None:
    opened = Written(CASES["timestamped_key_value"][0])
    opened.store.put(b"k", (5, 7))
    opened.commit()
    copy = copied(opened)

    [(key, found)] = open_store(copy.snapshots[0], copy.store, 0, raw=True).all()

    assert (key, found.value, found.timestamp) == (b"k", copy.store.value.serialize(5), 7)
