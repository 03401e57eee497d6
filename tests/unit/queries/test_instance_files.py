from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.config import StreamsConfig
from headrace.errors import QueryError
from headrace.home import ApplicationHome
from headrace.queries import instance_files
from headrace.queries.copy.database import WriteBatch
from headrace.queries.instance_files import InstanceFiles

NAME = "127.0.0.1:8080"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[InstanceFiles]:
    """The files of an instance, with a database that has one entry."""
    config = StreamsConfig(application_id="app").with_settings(state_dir=tmp_path)
    made = InstanceFiles(ApplicationHome.of(config, "cluster"), NAME)
    database = made.open()
    database.write(WriteBatch(entries={b"key": b"value"}))
    database.close()
    yield made
    made.close()


def entry(files: InstanceFiles) -> bytes | None:
    """Return the entry of the database."""
    database = files.open()
    view = database.view()
    value = view.get(b"key")
    del view
    database.close()
    return value


def remove_manifest(folder: Path) -> None:
    for path in folder.glob("MANIFEST-*"):
        path.unlink()


def spoil_current(folder: Path) -> None:
    (folder / "CURRENT").write_bytes(b"garbage")


@pytest.mark.parametrize("damage", [remove_manifest, spoil_current])
def test_a_damaged_database_is_replaced_by_an_empty_one(
    files: InstanceFiles,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
) -> None:
    [folder] = tmp_path.rglob("copy-1")
    damage(folder)

    with caplog.at_level(logging.WARNING, "headrace"):
        assert entry(files) is None

    assert "is damaged, and is replaced" in caplog.text


@pytest.mark.parametrize(
    "message",
    [
        f"IO error: While open a file for random read: 9.sst: {os.strerror(errno.EMFILE)}",
        f"Invalid argument: IO error: CURRENT: {os.strerror(errno.EMFILE)}",
        f"Corruption: IO error: 9.sst: {os.strerror(errno.EACCES)}",
        f"IO error: No space left on device: MANIFEST-17: {os.strerror(errno.ENOSPC)}",
        "IO error: lock hold by current process",
    ],
)
def test_a_database_stays_if_it_cannot_be_opened_for_a_while(
    files: InstanceFiles, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    def fail(_folder: Path) -> None:
        raise Exception(message)  # as the library does

    with monkeypatch.context() as patch:
        patch.setattr(instance_files, "DiskDatabase", fail)
        with pytest.raises(QueryError, match="stays as it is"):
            files.open()

    assert entry(files) == b"value"
