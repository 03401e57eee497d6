"""``headrace example NAME`` on both logs, as a process: it prints what its transcript has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.examples.catalogue import Example, examples
from tests.example_transcripts import LOGS, clear, path_of, run
from tests.kafka_broker import start_broker

pytestmark = pytest.mark.nightly("demo")


@pytest.fixture(scope="module")
def own_broker() -> Iterator[str]:
    """A broker of these tests: the topics of examples have fixed names, and must be empty."""
    with start_broker() as broker:
        yield broker.address


@pytest.fixture(params=LOGS)
def servers(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The address of a broker without topics, or None for the embedded log."""
    if request.param == "embedded":
        yield None
        return
    address: str = request.getfixturevalue("own_broker")
    yield address
    clear(address)


@pytest.mark.parametrize("example", examples(), ids=lambda each: each.name)
def test_an_example_prints_its_transcript(
    example: Example, servers: str | None, tmp_path: Path
) -> None:
    done = run(example, servers, tmp_path)

    assert done.code == 0, done.said
    assert done.transcript == path_of(example, "kafka" if servers else "embedded").read_text()
    assert not re.search(r"org\.apache|java\.|Py4J|\.scala|Traceback", done.said)
