"""Every test of this folder runs on the test driver and again on the hosts of production.

On Spark a test takes seconds, so that of these a part runs, unless ``HEADRACE_BEHAVIOUR=all``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from headrace import StreamsConfig, Topology
from headrace.brokers import open_log
from headrace.testing import DriverFactory, TopologyTestDriver
from tests.behaviour.mirror import Mirror, RecordingDriver
from tests.kafka_broker import RunningBroker
from tests.runtime.hosting import InProcessHost
from tests.spark.hosting import SparkHost

_SHARES = {"driver": 1, "runtime": 1, "embedded": 10, "kafka": 40}
"""The hosts, and one of how many tests runs there."""
_ON_SPARK = ("embedded", "kafka")
_NUMBERS = count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the hosts of a test."""
    if "topology_driver" not in metafunc.fixturenames:
        return
    name = f"{metafunc.module.__name__}.{metafunc.function.__name__}"
    everywhere = os.environ.get("HEADRACE_BEHAVIOUR") == "all"
    hosts = [
        host
        for host, share in _SHARES.items()
        if everywhere or crc32(f"{host} {name}".encode()) % share == 0
    ]
    if metafunc.module.__name__.endswith("foreign_key_join") and "kafka" in hosts:
        # These joins talk to themselves through topics: on Kafka nobody sees when they have
        # finished, so `tests/spark/test_operators.py` waits for what they say last.
        hosts.remove("kafka")
    together = pytest.mark.xdist_group("spark")
    chosen = [pytest.param(host, marks=together) if host in _ON_SPARK else host for host in hosts]
    metafunc.parametrize("topology_driver", chosen, indirect=True)


@pytest.fixture
def topology_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DriverFactory]:
    """A function that makes drivers; what is done with them is done again on the host."""
    drivers: list[RecordingDriver] = []

    def make(topology: Topology, **options: Any) -> TopologyTestDriver:
        driver = RecordingDriver(topology, **options)
        drivers.append(driver)
        return driver

    if request.param in _ON_SPARK:
        request.getfixturevalue("java")
    broker: RunningBroker | None = None
    if request.param == "kafka":
        broker = request.getfixturevalue("kafka")
    yield make
    for driver in drivers:
        driver.close()
    for number, driver in enumerate(drivers):
        folder = tmp_path / f"host-{number}"
        if request.param == "runtime":
            _on_the_runtime(driver, folder)
        elif request.param == "embedded":
            _on_spark(driver, folder)
        elif broker is not None:
            _on_kafka(driver, folder, broker)


def _on_the_runtime(driver: RecordingDriver, folder: Path) -> None:
    mirror = Mirror(driver)
    host = InProcessHost(
        mirror.topology, mirror.topics, mirror.config, folder, partitions=mirror.partitions
    )
    mirror.compare(host)
    mirror.compare_stores(host)


def _on_spark(driver: RecordingDriver, folder: Path) -> None:
    mirror = Mirror(driver, few_batches=True)
    config = mirror.config.with_settings(state_dir=folder, num_stream_threads=2)
    _compare(mirror, config)


def _on_kafka(driver: RecordingDriver, folder: Path, broker: RunningBroker) -> None:
    name = f"behaviour-{next(_NUMBERS)}"
    mirror = Mirror(driver, application_id=name, first_timestamp=1, few_batches=True)
    config = mirror.config.with_settings(
        state_dir=folder, num_stream_threads=2, bootstrap_servers=broker.address
    )
    try:
        _compare(mirror, config)
    finally:
        log = open_log(config)
        for topic in mirror.topics:  # the next test has topics of the same names
            log.delete_topic(topic)
        log.close()


def _compare(mirror: Mirror, config: StreamsConfig) -> None:
    with SparkHost(mirror.topology, mirror.topics, config, partitions=mirror.partitions) as host:
        mirror.compare(host)
    mirror.compare_stores(host)
