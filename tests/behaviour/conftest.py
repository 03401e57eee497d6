"""Every test of this folder runs on the test driver and again on the hosts of production.

``pytest 'tests/behaviour/test_filter.py::test_…[kafka]'`` runs one test on one host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from headrace_conformance.hosts import PatientHost, own_topics

from headrace import StreamsConfig, Topology
from headrace.brokers import open_log
from headrace.testing import DriverFactory, TopologyTestDriver
from tests.behaviour.mirror import Mirror, RecordingDriver
from tests.kafka_broker import RunningBroker
from tests.runtime.hosting import InProcessHost
from tests.spark.hosting import SparkHost
from tests.unique_names import unique

_ON_SPARK = ("embedded", "kafka")
"""The hosts on Spark, by their log."""
_HOSTS = (
    "driver",
    pytest.param("runtime", marks=pytest.mark.tier("test")),
    *(pytest.param(host, marks=pytest.mark.nightly("behaviour")) for host in _ON_SPARK),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a driver on every host; what Spark runs takes seconds: nightly."""
    if "topology_driver" in metafunc.fixturenames:
        metafunc.parametrize("topology_driver", _HOSTS, indirect=True)


@pytest.fixture
def topology_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DriverFactory]:
    """A function that makes drivers; a mirror repeats the calls to them on the host."""
    drivers: list[RecordingDriver] = []

    def make(
        topology: Topology, config: StreamsConfig | Mapping[str, Any] | None = None, **options: Any
    ) -> TopologyTestDriver:
        driver = RecordingDriver(topology, config=config, **options)
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
    with SparkHost(mirror.topology, mirror.topics, config, partitions=mirror.partitions) as host:
        mirror.compare(host)
    mirror.compare_stores(host)


def _on_kafka(driver: RecordingDriver, folder: Path, broker: RunningBroker) -> None:
    name = unique("behaviour")
    mirror = Mirror(driver, application_id=name, first_timestamp=1, few_batches=True)
    config = mirror.config.with_settings(
        state_dir=folder, num_stream_threads=2, bootstrap_servers=broker.address
    )
    partitions = mirror.partitions
    try:
        with SparkHost(mirror.topology, mirror.topics, config, partitions=partitions) as host:
            mirror.compare(PatientHost(host, own_topics(mirror.topology, config)))
        mirror.compare_stores(host)
    finally:
        log = open_log(config)
        for topic in mirror.topics:  # the next test has topics of the same names
            log.delete_topic(topic)
        log.close()
