"""`headrace warm-up` where there is nothing to do, or nothing can be done; see tests/spark too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace.cli import warm_up
from headrace.spark.processes.cds_archive import cds_archive
from headrace.spark.processes.java import find_java
from tests.cli.conftest import Cli


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the archive of this Spark, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cds_archive(find_java().version)


def test_a_second_warm_up_keeps_the_archive(cli: Cli, archive: Path) -> None:
    archive.parent.mkdir()
    archive.write_bytes(b"classes")

    assert cli("warm-up").out == f"Done before: {archive}.\n"
    assert archive.read_bytes() == b"classes"


def test_warm_up_again_replaces_the_archive(
    cli: Cli, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.parent.mkdir()
    archive.write_bytes(b"classes")
    monkeypatch.setattr(warm_up, "_make", lambda path: path.write_bytes(b"others"))

    done = cli("warm-up", "--again")

    assert done.out.startswith("Applications start faster from now on")
    assert archive.read_bytes() == b"others"


def test_files_of_a_killed_warm_up_are_deleted_after_an_hour(cli: Cli, archive: Path) -> None:
    archive.parent.mkdir()
    archive.write_bytes(b"classes")
    left, young = archive.with_suffix(".1.new"), archive.with_suffix(".2.new")
    other = archive.with_name("spark-4.0-java-17-0123.3.new")
    for path in (left, young, other):
        path.write_bytes(b"half of them")
    for path in (archive, left, other):
        os.utime(path, (0, 0))

    cli("warm-up")

    assert {*archive.parent.iterdir()} == {archive, young}


def test_an_unwritable_cache_is_an_error(cli: Cli, archive: Path) -> None:
    archive.parent.write_text("no folder")

    done = cli("warm-up")

    assert done.code == 1
    assert "cannot be made" in done.err
    assert "XDG_CACHE_HOME" in done.err


@pytest.mark.usefixtures("archive")
@pytest.mark.parametrize("module", ["processes.cds_archive", "session"])
def test_without_spark_warm_up_names_the_extra_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, f"headrace.spark.{module}", None)

    done = cli("warm-up")

    assert done.code == 1
    assert "pip install 'headrace[spark]'" in done.err
