"""Each log has its own state of an application, and one process that runs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace import CheckpointError, StreamsBuilder, StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.runtime.leadership import open_leadership
from headrace.spark.runner import Run
from tests.application_home import home_of
from tests.kafka_broker import RunningBroker
from tests.unique_names import unique
from tests.unit.spark.fake_query import FakeQuery, faked_queries
from tests.waiting import PATIENCE

pytestmark = pytest.mark.tier("test")  # needs a broker


@pytest.fixture(autouse=True)
def queries(monkeypatch: pytest.MonkeyPatch) -> list[FakeQuery]:
    """The queries that were started, without Spark."""
    return faked_queries(monkeypatch)


class Application:
    """An application that copies a topic, with settings as each test needs them."""

    def __init__(self, **settings: Any) -> None:
        self.name = unique("clusters")
        builder = StreamsBuilder()
        builder.stream(f"{self.name}-in", key=str, value=str).to(f"{self.name}-out")
        self._topology = builder.build()
        self._settings = settings

    def config(self, **settings: Any) -> StreamsConfig:
        return StreamsConfig(application_id=self.name, **{**self._settings, **settings})

    def create_topics(self, **settings: Any) -> None:
        with closing(open_log(self.config(**settings))) as log:
            for end in ("in", "out"):
                log.create_topic(f"{self.name}-{end}")

    def commit_progress(self) -> None:
        """Commit an offset as a batch does."""
        name = TopicPartition(f"{self.name}-in", 0)
        with closing(open_log(self.config())) as log:
            log.commit_offsets(self.name, {name: OffsetAndMetadata(0, OWN_OFFSETS)})

    def run(self, **settings: Any) -> Run:
        return Run(self._topology, self.config(**settings))


def test_a_program_with_state_in_the_embedded_log_starts_on_kafka_and_back(
    tmp_path: Path, kafka: RunningBroker, queries: list[FakeQuery]
) -> None:
    application = Application(state_dir=tmp_path)
    logs: list[dict[str, Any]] = [{}, {"bootstrap_servers": kafka.address}, {}]
    for log in logs[:2]:
        application.create_topics(**log)

    for log in logs:
        run = application.run(**log)
        assert run.start()
        run.release()

    assert len(queries) == 3
    checkpoints = sorted(path.parent for path in tmp_path.glob("*/*/checkpoint"))
    assert checkpoints == sorted(home_of(application.config(**log)).state for log in logs[:2])


@pytest.fixture(params=["embedded", "kafka"])
def application(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Application]:
    """An application on each log in turn that another process leads, and that has progress."""
    log: dict[str, Any] = {"embedded_path": tmp_path / "topics.db"}
    if request.param == "kafka":
        log = {"bootstrap_servers": request.getfixturevalue("kafka").address}
    application = Application(state_dir=tmp_path / "state", **log)
    application.create_topics()
    application.commit_progress()
    config = application.config()
    leadership = open_leadership(config, home_of(config))
    assert leadership.wait(PATIENCE)
    yield application
    leadership.release()


def test_a_process_that_lacks_the_state_learns_who_leads_and_how_to_stand_by(
    application: Application, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        application.run(state_dir=tmp_path / "own").start()

    message = str(caught.value)
    assert f"Process {os.getpid()} on " in message
    assert message.endswith(
        "To stand by for that process, start the same program with its `state.dir`, "
        f"{str(tmp_path / 'state')!r}, or stop that process first."
    )
    assert "headrace reset" not in message
