"""Tests on real Spark share one Java and one Kafka broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kafka_broker import RunningBroker
from tests.spark.hosts import HOSTS, ProgramHost, host_on

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lets the first application start Java, and ends it after the last test."""
    environment = pytest.MonkeyPatch()
    # Spark's workers import what scenarios and tests are made of.
    paths = [str(_ROOT / "conformance"), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    environment.chdir(tmp_path_factory.mktemp("java"))
    yield
    stop_spark()
    environment.undo()


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
    """Lets Spark begin anew in the same Java, before and after a test that changes its cores."""
    stop_spark()
    yield
    stop_spark()


def stop_spark() -> None:
    """Stop Spark, but not Java."""
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
