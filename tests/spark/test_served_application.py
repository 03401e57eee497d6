"""An application on real Spark that answers for itself without a store."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from headrace import KafkaStreams, StreamsBuilder
from headrace.brokers import TopicPartition, open_log
from headrace.metrics import MetricName
from tests.free_address import free_address
from tests.spark.hosts import await_that

pytestmark = pytest.mark.usefixtures("java")


def test_an_application_without_a_store_answers_for_itself(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(str.upper, value=str).to("out")
    streams = KafkaStreams(
        builder.build(),
        application_id="plain",
        state_dir=tmp_path,
        application_server=free_address(),
    )
    url = f"http://{streams.config.application_server}"
    written = TopicPartition("out", 0)

    def has_counted() -> bool:
        consumed = r"headrace_records_consumed_total\{[^}]*\} 1\n"
        return re.search(consumed, httpx.get(f"{url}/metrics").text) is not None

    with closing(open_log(streams.config)) as log:
        for topic in ("in", "out"):
            log.create_topic(topic)
        log.append([("in", 0, 1, b"k", b"a", None)])
        with streams:
            await_that(lambda: log.end_offsets([written])[written] == 1, "the result", streams)
            await_that(has_counted, "the record to be counted", streams)
            figures = httpx.get(f"{url}/metrics").text
            answers = [httpx.get(url + path) for path in ("/health/ready", "/v1/lag", "/v1/stores")]

    assert [each.status_code for each in answers] == [200, 200, 200]
    assert answers[-1].json()["data"] == []
    assert re.search(r'headrace_bytes_consumed_total\{.*topic="in",partition="0"\} 2\n', figures)
    assert re.search(r'headrace_node_seconds_count\{.*subtopology="0"\} 1\n', figures)
    phases = re.findall(r'headrace_batch_seconds_count\{.*phase="(\w+)"\} 1\n', figures)
    assert {"plan", "prepare", "run", "txn_commit"} <= {*phases}
    name = MetricName("stream-topic-metrics", "bytes-produced-total", (("topic", "out"),))
    assert streams.metrics()[name] == 2
