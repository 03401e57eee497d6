"""What tests of several folders use, and how they are divided among processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_broker import MissingToolError, RunningBroker, shared_broker

_HERE = Path(__file__).parent
_TOGETHER = {"spark": "spark", **dict.fromkeys(("brokers", "chaos", "cli", "runtime"), "kafka")}
"""Folders whose tests share what takes seconds to start: Java with Spark, or a broker."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares something; all else goes file by file to who is free."""
    for item in items:
        folder = item.path.relative_to(_HERE).parts[0]
        item.add_marker(pytest.mark.xdist_group(_TOGETHER.get(folder, str(item.path))))


@pytest.fixture(scope="session")
def kafka() -> RunningBroker:
    """A real broker, one for all tests of a process."""
    try:
        return shared_broker()
    except MissingToolError as error:
        pytest.fail(str(error))
