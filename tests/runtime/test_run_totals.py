"""The figures of a run: bytes, latencies, buffers, emits and entries."""

from __future__ import annotations

from pathlib import Path

from headrace import EmitStrategy, StreamsBuilder, Suppressed, TimeWindows, Topology
from headrace.brokers.log import RawRecord
from headrace.brokers.opening import open_log
from headrace.config import StreamsConfig
from headrace.metrics import MetricName
from headrace.runtime.run_files import BatchResult, Totals
from headrace.runtime.run_metrics import run_metrics
from tests.runtime.in_process import InProcessQuery

SECOND = 1_000


def totals_of(topology: Topology, folder: Path, *batches: list[RawRecord]) -> Totals:
    log = open_log(StreamsConfig(application_id="application").with_settings(state_dir=folder))
    log.create_topic("in", partitions=2)
    log.create_topic("out")
    query = InProcessQuery(topology, folder)
    for batch in batches:
        log.append(batch)
        query.run()
    return query.run_files.read(BatchResult).totals


def record(key: bytes, value: bytes, *, at: int, partition: int = 0) -> RawRecord:
    return ("in", partition, at, key, value, None)


def test_bytes_are_those_of_keys_values_and_headers(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(lambda value: value + "!", value=str).to(
        "out"
    )
    header = ("in", 1, 5, None, b"four", [("name", b"x"), ("none", None)])

    totals = totals_of(
        builder.build(),
        tmp_path,
        [record(b"key", b"value", at=1), record(b"key", b"", at=1, partition=1)],
        [header],
    )

    assert totals.bytes_consumed == {"in": {0: 3 + 5, 1: 3 + 4 + 5 + 4}}
    assert totals.bytes_produced == {"out": 3 + 6 + 3 + 1 + 5 + 5 + 4}
    assert {topic: each.total for topic, each in totals.latencies.items()} == {"out": 3}
    assert totals.transactions["commit"] >= 2
    assert sum(each.seconds.total for each in totals.samples["0"].values()) == 3


def test_bytes_of_stateful_inputs_and_changelogs_count(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    counted = builder.stream("in", key=str, value=str).group_by_key().count(materialized="counts")
    counted.to_stream().to("out")

    totals = totals_of(
        builder.build(),
        tmp_path,
        [record(b"a", b"xx", at=1), record(b"b", b"yy", at=2, partition=1)],
        [record(b"a", b"xx", at=3), record(b"c", b"", at=4)],
    )

    changelog = "application-counts-changelog"
    assert totals.bytes_consumed == {"in": {0: 3 + 3 + 1, 1: 3}}
    assert totals.bytes_produced["out"] == 4 * 9
    assert totals.bytes_produced[changelog] == totals.changes[changelog] * (1 + 8)
    assert set(totals.latencies) == {"out"}
    assert totals.entries == {"counts": {"0_0": 2, "0_1": 1}}


def test_suppress_reports_what_it_holds_back_and_what_it_emits(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in", key=str, value=str).group_by_key()
    counted = windowed.windowed_by(TimeWindows("10s", grace="0s")).count()
    final = counted.suppress(Suppressed.until_window_closes(name="final"))
    final.to_stream(lambda key, _value: key.key, key=str).to("out")

    totals = totals_of(
        builder.build(),
        tmp_path,
        [record(b"a", b"", at=1), record(b"b", b"", at=2)],
        [record(b"a", b"", at=10 * SECOND)],
    )

    rows, size = totals.buffers["final"]["0_0"]
    assert (rows, size > 0) == (1, True)
    assert totals.events == {"final": {"suppression-emit": 2}}
    metrics = run_metrics(totals, 0.0)
    tags = (("processor-node-id", "final"),)
    node = "stream-processor-node-metrics"
    assert metrics[MetricName(node, "suppression-emit-total", tags)] == 2
    assert metrics[MetricName("stream-state-metrics", "suppression-buffer-count", tags)] == 1


def test_windows_that_are_emitted_on_close_count(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in", key=str, value=str).group_by_key()
    windows = windowed.windowed_by(TimeWindows("10s", grace="0s"))
    counted = windows.emit_strategy(EmitStrategy.on_window_close()).count(name="final")
    counted.to_stream(lambda key, _value: key.key, key=str).to("out")

    totals = totals_of(
        builder.build(),
        tmp_path,
        [record(b"a", b"", at=1), record(b"b", b"", at=2)],
        [record(b"a", b"", at=10 * SECOND)],
    )

    assert totals.events == {"final": {"emit-final-records": 2}}
