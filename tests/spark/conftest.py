"""Tests on real Spark share one Java and one Kafka broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka_broker import RunningBroker
from tests.spark.hosts import HOSTS, ProgramHost, host_on
from tests.spark_session import stop_spark


@pytest.fixture(params=["embedded", "kafka"])
def servers(request: pytest.FixtureRequest) -> str | None:
    """The `bootstrap_servers` of an application: none for the embedded log."""
    if request.param == "embedded":
        return None
    broker: RunningBroker = request.getfixturevalue("kafka")
    return broker.address


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProgramHost]:
    """A host for a program of the test's own; the topics of one broker are everybody's."""
    made = host_on(request.param, request, tmp_path)
    yield made
    made.close()


@pytest.fixture
def spark_anew() -> Iterator[None]:
    """Restarts Spark in the same Java, before and after a test that changes its cores."""
    stop_spark()
    yield
    stop_spark()
