"""The output of workers: in the log of Spark, rolled over or not, and in that of the program."""

from __future__ import annotations

import logging
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import KafkaStreams, StreamsBuilder, Topology
from headrace.brokers import open_log
from headrace.examples.captcha import app as captcha
from headrace.examples.captcha import feed as captcha_feed
from headrace.examples.captcha.model import LogEvent
from headrace.examples.feeding import Encoding
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


@pytest.mark.usefixtures("java")
def test_functions_log_and_print_in_workers_to_the_log_of_the_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    builder = StreamsBuilder()
    logs = builder.stream("logs", key=str, value=LogEvent)
    logs.peek(lambda _, event: print("seen", event.browser_hash))
    actions = logs.map(captcha.by_browser).group_by_key()
    captcha.ask_suspicious(actions.count().to_stream())
    streams = KafkaStreams(builder.build(), application_id="captcha", state_dir=tmp_path)
    topics = open_log(streams.config)
    for topic in ("logs", "ask-captcha"):
        topics.create_topic(topic, partitions=2)
    events = islice(captcha_feed.printed(), 12)
    topics.append(map(Encoding(streams, captcha_feed.TOPICS).raw, events))

    with streams:
        asked = "Asking captcha for XXXYXXXY3"
        await_that(lambda: asked in caplog.text, "a line that a worker logs", streams)
    topics.close()

    names = {each.getMessage(): each.name for each in caplog.records}
    assert names[asked] == "headrace.examples.captcha.app"
    printed = [text for text, name in names.items() if name == "headrace.user"]
    assert sorted(printed) == [f"seen XXXYXXXY{number}" for number in (0, 2, 3, 4)]
