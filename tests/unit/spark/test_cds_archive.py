"""The archive of Spark's classes: made once for an installation, used after, never in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyspark
import pytest

from headrace.spark.processes.cds_archive import (
    archive_options,
    cds_archive,
    keep_archive,
    recording_options,
)


def made(archive: Path, classes: bytes = b"classes") -> Path:
    """Do what Java does when it ends."""
    option = recording_options(archive).split()[0]
    Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(classes)
    return archive


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark of its own, with one jar."""
    folder = tmp_path / "pyspark"
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / "core.jar").write_bytes(b"jar")
    monkeypatch.setattr(pyspark, "__file__", str(folder / "__init__.py"))
    return folder


def test_without_an_archive_java_starts_as_ever(tmp_path: Path) -> None:
    assert archive_options(tmp_path / "spark.jsa") == ""


def test_an_archive_that_was_made_is_used(tmp_path: Path) -> None:
    archive = made(tmp_path / "cache" / "spark.jsa")

    before = archive_options(archive)
    kept = keep_archive(archive)

    assert (before, kept) == ("", True)
    assert f"-XX:SharedArchiveFile={archive}" in archive_options(archive)
    assert archive.read_bytes() == b"classes"
    assert [*archive.parent.iterdir()] == [archive]
    assert archive.parent.stat().st_mode & 0o777 == 0o700


def test_keeping_an_archive_that_java_did_not_write_returns_false(tmp_path: Path) -> None:
    recording_options(tmp_path / "spark.jsa")

    assert not keep_archive(tmp_path / "spark.jsa")


def test_the_archives_in_use_are_kept_and_the_others_go(tmp_path: Path) -> None:
    for number in range(5):
        archive = made(tmp_path / f"spark-{number}.jsa")
        keep_archive(archive)
        age(archive, 100 - number)
    archive_options(tmp_path / "spark-1.jsa")  # in use, though made long ago

    keep_archive(made(tmp_path / "spark-5.jsa"))

    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["spark-1.jsa", "spark-3.jsa", "spark-4.jsa", "spark-5.jsa"]


def test_a_reinstalled_spark_or_another_java_has_another_archive(spark: Path) -> None:
    before = cds_archive("17.0.1")
    same = cds_archive("17.0.1")
    other_java = cds_archive("21")
    age(spark / "jars" / "core.jar", 60)
    other_time = cds_archive("17.0.1")
    (spark / "jars" / "more.jar").write_bytes(b"jar")
    other_jars = cds_archive("17.0.1")

    assert same == before
    assert len({before, other_java, other_time, other_jars}) == 4


def test_a_spark_elsewhere_has_another_archive(
    spark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cds_archive("17.0.1")
    moved = spark.rename(tmp_path / "moved")
    monkeypatch.setattr(pyspark, "__file__", str(moved / "__init__.py"))

    assert cds_archive("17.0.1") != before


def test_archives_are_where_caches_are(
    tmp_path: Path, spark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = cds_archive("17")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert given.parent == tmp_path / "headrace"
    assert cds_archive("17").parent == tmp_path / ".cache" / "headrace"


def test_an_unwritable_archive_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OSError, match="file"):
        recording_options(tmp_path / "file" / "spark.jsa")
