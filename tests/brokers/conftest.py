"""Every test that takes `log` or `broker_settings` runs on the embedded log and on Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer
from tests.brokers.consuming import Named, Opened, Settings
from tests.kafka_broker import RunningBroker
from tests.unique_names import unique


@pytest.fixture(params=["embedded", "kafka"])
def broker_settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings that lead a client to each broker in turn."""
    if request.param == "kafka":
        broker: RunningBroker = request.getfixturevalue("kafka")
        return {"bootstrap_servers": broker.address, "request_timeout": "20s"}
    return {"embedded_path": tmp_path / "topics.db"}


@pytest.fixture
def log(broker_settings: dict[str, Any]) -> Iterator[Broker]:
    """Each log in turn."""
    opened = open_log(StreamsConfig(**broker_settings))
    yield opened
    opened.close()


@pytest.fixture
def named() -> Callable[[str], str]:
    """Names of topics, groups and ids that no other test uses: the broker is shared."""
    mark = unique("test")
    return lambda name: f"{name}-{mark}"


@pytest.fixture
def topic(log: Broker, named: Named) -> str:
    """A topic of two partitions."""
    name = named("orders")
    log.create_topic(name, partitions=2)
    return name


@pytest.fixture
def opened(broker_settings: Settings) -> Iterator[Opened]:
    """Opens consumers that read from the beginning, and closes them."""
    consumers: list[KafkaConsumer[str, str]] = []

    def open_consumer(**settings: Any) -> KafkaConsumer[str, str]:
        quick = {"fetch_max_wait": "10ms", "heartbeat_interval": "100ms"}
        merged = {"auto_offset_reset": "earliest", **quick, **broker_settings, **settings}
        consumers.append(KafkaConsumer(key=str, value=str, **merged))
        return consumers[-1]

    yield open_consumer
    for consumer in consumers:
        consumer.close()
