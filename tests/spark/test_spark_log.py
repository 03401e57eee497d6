"""The log of Spark: Java, its workers and log4j still write to it after a roll-over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import KafkaStreams, StreamsBuilder, Topology
from headrace.brokers import open_log
from headrace.spark.processes import rolling_log
from headrace.spark.session import log_of_java
from tests.application_home import embedded_home
from tests.spark.hosts import await_that


def printing() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).peek(lambda _, value: print(value, flush=True))
    return builder.build()


@pytest.mark.usefixtures("java")
def test_prints_and_log_lines_after_a_roll_over_are_in_the_new_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = KafkaStreams(printing(), application_id="printing", state_dir=tmp_path)
    topics = open_log(streams.config)
    topics.create_topic("in")

    with streams:
        log = log_of_java(embedded_home(tmp_path, "printing").spark_log)
        old = log.with_name("spark.log.1")
        topics.append([("in", 0, 1, b"k", b"printed before", None)])
        await_that(lambda: "printed before" in log.read_text(), "it to be printed", streams)
        monkeypatch.setattr(rolling_log, "_LARGEST_BYTES", 1)
        await_that(old.exists, "the roll over", streams)
        monkeypatch.undo()
        topics.append([("in", 0, 1, b"k", b"printed after", None)])
        await_that(lambda: "printed after" in log.read_text(), "it to be printed", streams)
        java: Any = SparkSession.builder.getOrCreate()._jvm
        java.org.slf4j.LoggerFactory.getLogger("headrace").error("logged after")

    topics.close()
    assert b"\0" not in log.read_bytes()
    assert "printed before" not in log.read_text()
    assert "logged after" in log.read_text()
