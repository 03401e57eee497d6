"""The log of a program in a topic: its fields, its partitions, and what cannot be written."""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamsConfig
from headrace.clients import AdminClient, KafkaConsumer, log_context
from headrace.examples.log_appender.main import EVENTS, browse, close_log, logging_config, main


@pytest.fixture
def config(tmp_path: Path) -> Iterator[StreamsConfig]:
    yield StreamsConfig(embedded_path=tmp_path / "topics.db")
    close_log()


def events_of(config: StreamsConfig) -> list[dict[str, Any]]:
    with KafkaConsumer(config, key=bytes, value=str, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for("logs"))
        records = sorted(consumer.poll(), key=lambda record: record.timestamp)
    assert {record.key for record in records} <= {None}
    return [json.loads(record.value) for record in records]


def logged(config: StreamsConfig, **handler: Any) -> None:
    with AdminClient(config) as admin:
        settings = {"max.message.bytes": "500"}
        admin.create_topic("logs", partitions=2, settings=settings, if_not_exists=True)
    logging.config.dictConfig(logging_config(config, **handler))


def test_sixty_events_without_a_key_reach_both_partitions(
    config: StreamsConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(config)

    first, second, event = capsys.readouterr().out.splitlines()
    assert code == 0
    assert (first, second) == ("logs-0: 30 events", "logs-1: 30 events")
    assert json.loads(event)["appName"] == "testdata"
    assert len(events_of(config)) == EVENTS


def test_constants_context_and_logger_are_fields_of_their_own(config: StreamsConfig) -> None:
    logged(config)

    with log_context(browserHash="XXXYXXXY0"):
        logging.getLogger("shop.ProductView").info("Viewed %(productId)s", {"productId": "p-1"})
    close_log()

    (event,) = events_of(config)
    assert event == {
        "browserHash": "XXXYXXXY0",
        "@version": "1",
        "level": "INFO",
        "logger_name": "shop.ProductView",
        "appName": "testdata",
        "appVersion": "1.0",
        "thread_name": "MainThread",
        "message": "Viewed p-1",
        "productId": "p-1",
    }


def test_an_exception_brings_its_stack_trace(config: StreamsConfig) -> None:
    logged(config, topic="traces")

    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logging.getLogger("shop").exception("Failed")
    close_log()

    with KafkaConsumer(config, key=bytes, value=str, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for("traces"))
        (record,) = consumer.poll()
    assert "ZeroDivisionError: division by zero" in json.loads(record.value)["stack_trace"]


def test_an_event_that_is_too_large_goes_to_the_console(
    config: StreamsConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    logged(config)

    logging.getLogger("shop").info("short")
    logging.getLogger("shop").info("x" * 1_000)
    close_log()

    assert [event["message"] for event in events_of(config)] == ["short"]
    assert capsys.readouterr().err == "x" * 1_000 + "\n"


def test_the_same_seed_logs_the_same_events(config: StreamsConfig) -> None:
    logged(config, delivery="blocking")

    browse(10)
    browse(10)
    close_log()

    events = sorted(json.dumps(event) for event in events_of(config))
    assert events[::2] == events[1::2]


def test_end_to_end_the_events_of_threads_share_the_partition_of_their_name(
    config: StreamsConfig,
) -> None:
    logged(config, keying="thread")

    browse(20)
    close_log()

    with KafkaConsumer(config, key=bytes, value=str, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for("logs"))
        records = consumer.poll()
    assert len({(record.partition, record.key) for record in records}) == 1
    assert len(records) == 20
