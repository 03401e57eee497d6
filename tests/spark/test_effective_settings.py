"""The settings with which Spark runs, whatever file they come from, and its sockets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import KafkaStreams, State, StreamsBuilder
from headrace.brokers import open_log
from headrace.spark.processes.worker_startup import socket_directory
from tests.spark.hosts import await_that
from tests.waiting import PATIENCE

START = """
import sys
from headrace import KafkaStreams, StreamsBuilder, StreamsError
from headrace.brokers import open_log

builder = StreamsBuilder()
builder.stream("in", key=str, value=str).group_by_key().count()
streams = KafkaStreams(builder.build(), application_id="app", state_dir=sys.argv[1])
log = open_log(streams.config)
log.create_topic("in")
log.close()
try:
    streams.start()
except StreamsError as error:
    print(type(error).__name__, error)
"""


# It has a Java of its own, which reads the file when it starts.
@pytest.mark.nightly("faults")
def test_a_setting_of_the_defaults_of_spark_that_breaks_exactly_once_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.speculation true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    done = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )

    assert done.stdout.startswith("ConfigError Spark has 'spark.speculation' = true")
    assert "Remove it from `spark-defaults.conf`" in done.stdout


@pytest.mark.usefixtures("java")
def test_java_and_python_talk_over_unix_sockets(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).group_by_key().count()
    streams = KafkaStreams(builder.build(), application_id="sockets", state_dir=tmp_path)
    log = open_log(streams.config)
    log.create_topic("in")
    log.close()
    directory = socket_directory()

    def bound() -> list[str]:
        lines = Path("/proc/net/unix").read_text().splitlines()
        return [line for line in lines if directory is not None and f" {directory}/" in line]

    with streams:
        await_that(lambda: streams.state() is State.RUNNING, "running", streams)
        session = SparkSession.getActiveSession()
        assert session is not None
        assert session.conf.get("spark.python.unix.domain.socket.enabled") == "true"
        await_that(lambda: bound() != [], "a socket with a name", streams)
