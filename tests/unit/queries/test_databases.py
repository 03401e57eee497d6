"""Both databases of an instance: in memory, and RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.queries.copy.database import Database, WriteBatch, prefix_end
from headrace.queries.copy.disk_database import DiskDatabase
from headrace.queries.copy.memory_database import MemoryDatabase


@pytest.fixture(params=["memory", "disk"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    opened: Database = MemoryDatabase() if request.param == "memory" else DiskDatabase(tmp_path)
    yield opened
    opened.close()


def _put(database: Database, *keys: bytes, value: bytes = b"1") -> None:
    database.write(WriteBatch(entries=dict.fromkeys(keys, value)))


def test_a_batch_puts_and_deletes(database: Database) -> None:
    _put(database, b"a", b"b", b"c")

    database.write(WriteBatch(entries={b"a": None, b"b": b"2", b"d": b""}))

    view = database.view()
    assert [view.get(key) for key in (b"a", b"b", b"c", b"d")] == [None, b"2", b"1", b""]


def test_a_view_stays_the_same_while_writes_continue(database: Database) -> None:
    views = []
    for number in range(300):
        _put(database, b"key", b"%03d" % number, value=b"%d" % number)
        views.append(database.view())
    database.write(WriteBatch(deleted_ranges=[(b"", b"\xff")]))

    assert [view.get(b"key") for view in views] == [b"%d" % number for number in range(300)]
    assert [len([*view.scan(b"0", b"k")]) for view in views] == [*range(1, 301)]
    assert [*database.view().scan(b"", b"\xff")] == []


def test_a_scan_has_bounds_and_two_directions(database: Database) -> None:
    _put(database, b"a", b"b", b"ba", b"b\xff", b"c", b"\xff")
    view = database.view()

    assert [key for key, _ in view.scan(b"b", b"c")] == [b"b", b"ba", b"b\xff"]
    assert [key for key, _ in view.scan(b"b", b"c", reverse=True)] == [b"b\xff", b"ba", b"b"]
    assert [*view.scan(b"d", b"e")] == []
    assert [key for key, _ in view.scan(b"b", prefix_end(b"b"))] == [b"b", b"ba", b"b\xff"]


def test_two_long_scans_of_one_view_do_not_disturb_each_other(database: Database) -> None:
    keys = [b"%04d" % number for number in range(1_000)]
    _put(database, *keys)
    view = database.view()

    up, down = view.scan(b"0", b"1"), view.scan(b"0", b"1", reverse=True)

    assert [(one[0], other[0]) for one, other in zip(up, down, strict=True)] == [
        *zip(keys, keys[::-1], strict=True)
    ]


def test_a_range_is_deleted_before_the_entries_of_its_batch(database: Database) -> None:
    _put(database, b"a", b"b", b"c")

    database.write(WriteBatch([(b"a", b"c")], {b"b": b"new"}))

    assert [*database.view().scan(b"", b"z")] == [(b"b", b"new"), (b"c", b"1")]


def test_the_end_of_a_prefix_skips_full_bytes() -> None:
    assert prefix_end(b"a\xff\xff") == b"b"


def test_files_have_what_was_written(tmp_path: Path) -> None:
    first = DiskDatabase(tmp_path)
    _put(first, b"key")
    first.close()

    second = DiskDatabase(tmp_path)

    assert second.view().get(b"key") == b"1"
    second.close()
