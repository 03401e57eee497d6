"""Every test of this folder runs on the test driver and again on the hosts of production.

On Spark a test takes seconds, so that some of each file run there, unless
``HEADRACE_BEHAVIOUR=all``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from inspect import signature
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from headrace_conformance.hosts import PatientHost, own_topics

from headrace import Topology
from headrace.brokers import open_log
from headrace.testing import DriverFactory, TopologyTestDriver
from tests.behaviour.mirror import Mirror, RecordingDriver
from tests.kafka_broker import RunningBroker
from tests.runtime.hosting import InProcessHost
from tests.spark.hosting import SparkHost

_SHARES = {"embedded": 10, "kafka": 20}
"""The hosts on Spark, and one of how many tests of a file runs there, beginning with its first."""
_NUMBERS = count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the hosts of a test."""
    if "topology_driver" not in metafunc.fixturenames:
        return
    names = _single_tests(metafunc.module)
    name = metafunc.function.__name__
    everywhere = os.environ.get("HEADRACE_BEHAVIOUR") == "all"
    on_spark = [host for host, share in _SHARES.items() if everywhere or name in names[::share]]
    metafunc.parametrize("topology_driver", ["driver", "runtime", *on_spark], indirect=True)


def _single_tests(module: ModuleType) -> list[str]:
    """Return the tests that can run elsewhere, in order; not those that are many in one."""
    return [
        name
        for name, test in vars(module).items()
        if name.startswith("test_")
        and "topology_driver" in signature(test).parameters
        and all(mark.name != "parametrize" for mark in getattr(test, "pytestmark", ()))
    ]


@pytest.fixture
def topology_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DriverFactory]:
    """A function that makes drivers; what is done with them is done again on the host."""
    drivers: list[RecordingDriver] = []

    def make(topology: Topology, **options: Any) -> TopologyTestDriver:
        driver = RecordingDriver(topology, **options)
        drivers.append(driver)
        return driver

    if request.param in _SHARES:
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
    name = f"behaviour-{next(_NUMBERS)}"
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
