"""Finding Java, and the errors about an unsuitable one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import StreamsError
from headrace.spark.processes.java import find_java
from tests.unit.spark.fake_java import install

pytestmark = pytest.mark.tier("test")  # starts processes

NEEDED = "Spark needs Java 17 or later. Install one and set `JAVA_HOME`, or put it on the path."


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    return monkeypatch


def test_a_missing_java_is_an_error_before_spark_starts(no_java: pytest.MonkeyPatch) -> None:
    with pytest.raises(StreamsError) as caught:
        find_java()

    assert str(caught.value) == f"Java is missing: none was found. {NEEDED}"


def test_a_java_home_without_java_is_named(tmp_path: Path, no_java: pytest.MonkeyPatch) -> None:
    no_java.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(StreamsError) as caught:
        find_java()

    where = f"`JAVA_HOME` is {str(tmp_path)!r}, where there is none"
    assert str(caught.value) == f"Java is missing: {where}. {NEEDED}"


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', "17.0.9"),
        ('java version "21" 2023-09-19 LTS', "21"),
        ('openjdk version "25-ea" 2025-09-16', "25-ea"),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1" 2021-10-19', "17.0.1"),
    ],
)
def test_a_suitable_java_reports_its_version(
    tmp_path: Path, no_java: pytest.MonkeyPatch, says: str, version: str
) -> None:
    java = install(tmp_path, says)
    no_java.setenv("JAVA_HOME", str(tmp_path))
    no_java.setenv("PATH", "/usr/bin:/bin")

    assert find_java() == (str(java), version)


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('java version "1.8.0_392"', "1.8.0_392"),
        ('openjdk version "11.0.2" 2019-01-15', "11.0.2"),
    ],
)
def test_a_java_that_is_too_old_is_named_with_its_version(
    tmp_path: Path, no_java: pytest.MonkeyPatch, says: str, version: str
) -> None:
    java = install(tmp_path, says)
    no_java.setenv("PATH", f"{java.parent}:/usr/bin:/bin")

    with pytest.raises(StreamsError) as caught:
        find_java()

    assert str(caught.value) == (f"Java is too old: {str(java)!r} has version {version}. {NEEDED}")


def test_a_java_that_may_not_be_started_is_an_error(
    tmp_path: Path, no_java: pytest.MonkeyPatch
) -> None:
    java = install(tmp_path, 'openjdk version "17.0.9"')
    java.chmod(0o644)
    no_java.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(StreamsError) as caught:
        find_java()

    assert str(caught.value) == (
        f"Java does not run: {str(java)!r} cannot be started: Permission denied. {NEEDED}"
    )


@pytest.mark.parametrize(
    ("says", "reported"),
    [
        ("Error: could not find libjava.so\nError: no runtime", "Error: could not find libjava.so"),
        ("", "nothing"),
    ],
)
def test_a_java_that_fails_is_not_taken_for_an_old_one(
    tmp_path: Path, no_java: pytest.MonkeyPatch, says: str, reported: str
) -> None:
    java = install(tmp_path, says, "exit 2")
    no_java.setenv("PATH", f"{java.parent}:/usr/bin:/bin")

    with pytest.raises(StreamsError) as caught:
        find_java()

    assert str(caught.value) == (
        f"Java does not run: {str(java)!r} says {reported!r} instead of its version. {NEEDED}"
    )


def test_a_java_that_hangs_times_out(tmp_path: Path, no_java: pytest.MonkeyPatch) -> None:
    java = install(tmp_path, "", "exec sleep 60")
    no_java.setenv("PATH", f"{java.parent}:/usr/bin:/bin")
    no_java.setattr("headrace.spark.processes.java._SECONDS", 0.1)

    with pytest.raises(StreamsError, match=r"Java does not run: .* says nothing for 0\.1 s\."):
        find_java()
