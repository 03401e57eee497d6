"""Fixtures that tests of several folders use."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka_broker import (
    MissingToolError,
    RunningBroker,
    broker_described_in,
    shared_broker,
)
from tests.spark_session import stop_spark

pytest.register_assert_rewrite("tests.behaviour.mirror")

# A background process of a script ignores Ctrl-C, and so would all processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

_HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start Java with the first application, and end it after the last test."""
    environment = pytest.MonkeyPatch()
    # Spark's workers import what scenarios and tests are made of.
    root = _HERE.parent
    paths = [str(root / "conformance"), str(root), os.environ.get("PYTHONPATH", "")]
    environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    environment.setenv("PYTHONFAULTHANDLER", "1")  # an aborted process prints its stacks
    environment.chdir(tmp_path_factory.mktemp("java"))
    yield
    stop_spark()
    environment.undo()


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> RunningBroker:
    """A real broker, one for all tests of a run, or of a process that runs alone."""
    description = getattr(request.config, "workerinput", {}).get("broker")
    try:
        return broker_described_in(Path(description)) if description else shared_broker()
    except MissingToolError as error:
        pytest.fail(str(error))
