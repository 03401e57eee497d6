"""Partitions of records, consumers of a group, a crash, and a group that starts over."""

from __future__ import annotations

import itertools
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from headrace import BufferExhaustedError, StreamsConfig
from headrace.clients import AdminClient, KafkaConsumer, TopicPartition
from headrace.examples.clients.consuming import GROUP, reset_tool
from headrace.examples.clients.main import crash, create_topics, main, read_with
from headrace.examples.clients.producing import (
    LOGS,
    by_browser,
    fill_the_buffer,
    send_all,
    send_logs,
)

QUICK: Any = {"heartbeat_interval": "100ms"}


@pytest.fixture
def config(tmp_path: Path) -> StreamsConfig:
    made = StreamsConfig(embedded_path=tmp_path / "topics.db")
    create_topics(made)
    return made


@pytest.mark.parametrize("settings", [{"batch_size": 16_384, "linger": "5ms"}, {"batch_size": 0}])
def test_a_callback_prints_the_partition_of_each_of_100_records(
    config: StreamsConfig, capsys: pytest.CaptureFixture[str], settings: Any
) -> None:
    send_all(config, **settings)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 100
    assert {line.split()[0] for line in lines} == {f"partition={n}" for n in range(4)}
    with KafkaConsumer(config, key=str, value=str, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for("my-topic"))
        pairs = {(record.key, record.value) for record in consumer.poll()}
    assert pairs == {(f"KEY-{i}", f"VALUE-{i}") for i in range(100)}


def test_a_full_buffer_is_an_error_of_its_own_after_10_ms(config: StreamsConfig) -> None:
    error = fill_the_buffer(config)

    assert isinstance(error, BufferExhaustedError)
    assert error.seconds == 0.01


def test_the_events_of_a_browser_share_a_partition(config: StreamsConfig) -> None:
    send_logs(config, 50)

    with KafkaConsumer(config, key=str, value=str, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for(LOGS))
        records = consumer.poll()
    placed = {(json.loads(record.value)["browserHash"], record.partition) for record in records}
    assert len(records) == 50
    assert len(placed) == 5
    assert {partition for _, partition in placed} == {0, 1}


@pytest.mark.parametrize("value", ["no json", "{}", "7", "[]", '{"other": 1}'])
def test_a_value_without_a_browser_is_left_to_kafka(value: str) -> None:
    assert by_browser(LOGS, None, value, 2) is None
    assert by_browser(LOGS, None, '{"browserHash": null}', 2) in {0, 1}


def test_one_consumer_reads_both_partitions_five_records_at_a_time(
    config: StreamsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "SimpleConsumer")
    send_logs(config, 20)

    read = read_with(config, 1, 20, **QUICK)

    assert read == {1: 20}
    assert caplog.messages[:4] == [
        "Consumer 1 subscribed ...",
        "Consumer 1 polling ...",
        "*** Partitions assigned logs-0",
        "*** Partitions assigned logs-1",
    ]
    assert caplog.messages[-2:] == [
        "*** Partitions revoked logs-0",
        "*** Partitions revoked logs-1",
    ]
    sizes = [int(text.split()[1]) for text in caplog.messages if text.startswith("Received")]
    assert max(sizes) <= 5
    lines = [text for text in caplog.messages if text.startswith("ConsumerId:1-Topic:logs => ")]
    assert len(lines) == 20
    line = r"ConsumerId:1-Topic:logs => Partition=[01], Offset=\d+, EventTime:\[\d+\] Val=\{.+\}"
    assert all(re.fullmatch(line, text) for text in lines)


def test_a_listener_seeks_when_partitions_are_assigned(config: StreamsConfig) -> None:
    send_logs(config, 20)

    read_with(config, 1, 20, **QUICK)
    again = read_with(config, 1, 20, start_offset=0, **QUICK)

    assert again == {1: 20}


def test_the_reset_tool_commits_an_offset_for_the_group(config: StreamsConfig) -> None:
    send_logs(config, 20)
    read_with(config, 1, 20, **QUICK)

    assert set(reset_tool(config, LOGS, 3).values()) == {3}

    with AdminClient(config) as admin:
        assert admin.list_group_offsets(GROUP)[TopicPartition(LOGS, 0)].offset == 3
        assert admin.list_group_offsets(GROUP)[TopicPartition(LOGS, 1)].offset == 3


def test_end_to_end_a_crash_after_which_uncommitted_records_are_printed_again(
    config: StreamsConfig,
) -> None:
    lost, again = crash(config, **QUICK)

    assert lost
    assert {(line.partition, line.offset) for line in lost} == {
        (line.partition, line.offset) for line in again
    }
    assert not {line.consumer for line in lost} & {line.consumer for line in again}


def test_end_to_end_the_consumer_that_stood_by_takes_over(
    config: StreamsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "SimpleConsumer")

    _, again = crash(config, **QUICK)

    taking_over = {f"consumer-{line.consumer}" for line in again}
    before = itertools.takewhile(lambda each: "crashed" not in each.message, caplog.records)
    busy = {each.threadName for each in before if each.message.startswith("ConsumerId")}
    assert len(taking_over) == 1
    assert not taking_over & busy


def test_end_to_end_a_crash_while_no_consumer_shows_a_partition(
    config: StreamsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer in a rebalance has no partition, and another one has it a moment later."""
    monkeypatch.setattr(KafkaConsumer, "assignment", lambda _: set())

    lost, again = crash(config, **QUICK)

    assert lost
    assert len(again) >= len(lost)


def test_end_to_end_the_whole_story(
    config: StreamsConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(config) == 0

    out = capsys.readouterr().out
    assert "`max.block.ms`" in out
    assert "One consumer: {1: 40}" in out
    assert "From offset 0 again:" in out
    assert "logs-1: the group continues at offset 5" in out
