"""An instance whose applier fails opens its files again, whatever readers have asked before."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.brokers.opening import open_log
from headrace.brokers.sessions import Broker
from headrace.errors import QueryError
from headrace.queries.copy.database import Database, WriteBatch
from headrace.queries.copy.disk_database import DiskDatabase, DiskView
from headrace.queries.instance_files import InstanceFiles
from tests.unit.queries.server.conftest import fill
from tests.unit.queries.server.served_application import ServedApplication
from tests.waiting import await_that


@pytest.fixture
def application(tmp_path: Path) -> Iterator[ServedApplication]:
    """An application whose copy is on disk."""
    started = ServedApplication(tmp_path, is_on_disk=True)
    fill(started)
    yield started
    started.close()


def fail_next_write(monkeypatch: pytest.MonkeyPatch) -> list[WriteBatch]:
    """Make the next write fail; return a list that has it then."""
    write = DiskDatabase.write
    failed: list[WriteBatch] = []

    def fail_once(database: DiskDatabase, batch: WriteBatch) -> None:
        if not failed:
            failed.append(batch)
            raise OSError("no space left")
        write(database, batch)

    monkeypatch.setattr(DiskDatabase, "write", fail_once)
    return failed


def test_an_instance_restarts_on_its_files_after_point_reads(
    application: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    for encoding in ("json", "bytes"):
        path = "/v1/stores/counts/keys/" + ("alice" if encoding == "json" else "YWxpY2U")
        assert application.get(path, {"encoding": encoding}).status_code == 200
    failed = fail_next_write(monkeypatch)

    application.write("lines", (b"alice", b"x"), at=120_000)
    application.run()

    assert failed
    assert application.get("/v1/stores/counts/keys/alice").json() == 3


def test_an_old_point_read_keeps_no_view_of_the_database(
    application: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    views: list[weakref.ref[Any]] = []
    made = DiskDatabase.view

    def noting_view(database: DiskDatabase) -> DiskView:
        view = made(database)
        views.append(weakref.ref(view))
        return view

    monkeypatch.setattr(DiskDatabase, "view", noting_view)
    application.write("lines", (b"alice", b"x"), at=120_000)
    application.run()
    read = application.get("/v1/stores/counts/keys/YWxpY2U", {"encoding": "bytes"})
    assert read.status_code == 200

    application.instance.snapshots.clear()
    gc.collect()

    await_that(lambda: not any(view() for view in views), "all views to be freed")


def test_an_instance_that_cannot_open_its_files_again_keeps_no_broker_open(
    application: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_files = InstanceFiles.open
    brokers: set[Broker] = set()
    errors = [QueryError("too many open files") for _ in range(2)]

    def noting_open(*arguments: Any) -> Broker:
        broker = open_log(*arguments)
        close = broker.close

        def noting_close() -> None:
            brokers.discard(broker)
            close()

        monkeypatch.setattr(broker, "close", noting_close)
        brokers.add(broker)
        return broker

    def open_later(files: InstanceFiles) -> Database:
        if errors:
            raise errors.pop()
        return open_files(files)

    monkeypatch.setattr("headrace.queries.instance.open_log", noting_open)
    monkeypatch.setattr(InstanceFiles, "open", open_later)
    fail_next_write(monkeypatch)

    application.write("lines", (b"alice", b"x"), at=120_000)
    application.run()

    assert not errors
    assert len(brokers) == 1
