"""The fixtures for tests of users: a Kafka broker, and an embedded log."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from headrace import StreamsError
from headrace.clients import AdminClient, KafkaConsumer, KafkaProducer
from headrace.testing import EmbeddedTopics
from headrace.testing.kafka import RunningBroker
from headrace.testing.kafka.jars import VERSION, MissingToolError, jars


def test_a_test_reads_what_it_wrote_to_the_broker(kafka_broker: RunningBroker) -> None:
    with KafkaProducer(key=str, value=str, **kafka_broker.settings) as producer:
        producer.send("greetings", "ann", "hello")
    with KafkaConsumer(
        key=str, value=str, auto_offset_reset="earliest", **kafka_broker.settings
    ) as consumer:
        consumer.assign(consumer.partitions_for("greetings"))
        (record,) = consumer.poll("30s")

    assert (record.key, record.value) == ("ann", "hello")
    assert kafka_broker.sasl_address == ""


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_an_embedded_log_of_its_own(
    embedded_log: EmbeddedTopics, number: int
) -> None:
    with AdminClient(**embedded_log.settings) as admin:
        before = admin.list_topics()
        admin.create_topic(f"topic-{number}")

    assert before == []
    assert list(embedded_log.folder.iterdir())


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without jars, and a folder that has the only programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_missing_tool_is_named_with_its_package(tools: Path) -> None:
    with pytest.raises(MissingToolError, match="java is missing"):
        jars()
    program(tools, "java", "exit 0")
    with pytest.raises(MissingToolError, match="mvn is missing"):
        jars()


def test_maven_runs_once_beside_a_copy_of_the_pom(tools: Path, tmp_path: Path) -> None:
    program(tools, "java", "exit 0")
    program(tools, "mvn", f'echo "$@" >> {tmp_path}/calls')

    found = [jars(), jars()]

    cache = tmp_path / "cache" / "headrace" / f"kafka-{VERSION}"
    assert found == [cache / "target" / "lib"] * 2
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"--quiet --batch-mode --file {cache}/pom.xml package"
    ]
    assert f"<kafka.version>{VERSION}</kafka.version>" in (cache / "pom.xml").read_text()


def test_what_maven_says_is_in_the_error(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tools, "java", "exit 0")
    program(tools, "mvn", "echo no route to host; exit 1")

    with pytest.raises(StreamsError, match="no route to host"):
        jars()

    def too_slow(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("mvn", 600)

    monkeypatch.setattr(subprocess, "run", too_slow)
    with pytest.raises(StreamsError, match="within 600 s"):
        jars()
