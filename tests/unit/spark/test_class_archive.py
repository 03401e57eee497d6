"""The archive of Spark's classes: made once, used after, never in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.spark.processes.class_archive import archive_options, cache_directory


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_the_first_start_makes_an_archive_of_its_own(tmp_path: Path) -> None:
    options = archive_options(tmp_path / "cache", "spark-4")

    made = tmp_path / "cache" / f"spark-4.{os.getpid()}.new"
    assert f"-XX:ArchiveClassesAtExit={made}" in options
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_a_finished_archive_is_taken_and_used(tmp_path: Path) -> None:
    made = tmp_path / "spark-4.77.new"
    made.write_bytes(b"classes")
    age(made, 60)

    options = archive_options(tmp_path, "spark-4")

    assert f"-XX:SharedArchiveFile={tmp_path / 'spark-4.jsa'}" in options
    assert (tmp_path / "spark-4.jsa").read_bytes() == b"classes"
    assert not made.exists()


def test_an_archive_that_is_still_written_is_left_alone(tmp_path: Path) -> None:
    made = tmp_path / "spark-4.77.new"
    made.write_bytes(b"half")

    options = archive_options(tmp_path, "spark-4")

    assert "ArchiveClassesAtExit" in options
    assert made.read_bytes() == b"half"


def test_another_spark_or_java_has_another_archive(tmp_path: Path) -> None:
    (tmp_path / "spark-4.jsa").write_bytes(b"classes")

    assert "ArchiveClassesAtExit" in archive_options(tmp_path, "spark-5")


def test_an_archive_that_another_process_took_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "spark-4.77.new"
    monkeypatch.setattr(Path, "glob", lambda _self, _pattern: [gone])

    assert "ArchiveClassesAtExit" in archive_options(tmp_path, "spark-4")


def test_without_a_place_to_write_there_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert archive_options(tmp_path / "file" / "cache", "spark-4") == ""


def test_the_archive_is_kept_where_caches_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = cache_directory()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert given == tmp_path / "headrace"
    assert cache_directory() == tmp_path / ".cache" / "headrace"
