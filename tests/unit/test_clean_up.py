"""Cleaning up: the next start of an application is a first one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import CheckpointInUseError, GroupNotEmptyError, KafkaStreams
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer
from tests.application_home import embedded_home
from tests.unit.fake_run import program


class Cleaned:
    """An application that has run, and does not run now."""

    def __init__(self, folder: Path) -> None:
        self.app = KafkaStreams(program().build(), application_id="app", state_dir=folder)
        self.home = embedded_home(folder)
        self.checkpoint = self.home.checkpoint
        (self.checkpoint / "spark").mkdir(parents=True)
        self.log: Broker = open_log(self.app.config)
        for topic in ("in", "out", "app-markers", "app-leader", "app-counts-changelog"):
            self.log.create_topic(topic)
        for group, topic in (
            ("app", "in"),
            ("app-markers", "app-markers"),
            ("app-leader", "app-leader"),
        ):
            name = TopicPartition(topic, 0)
            self.log.commit_offsets(group, {name: OffsetAndMetadata(3, OWN_OFFSETS)})


def test_a_cleaned_application_is_as_if_it_had_never_run(tmp_path: Path) -> None:
    cleaned = Cleaned(tmp_path)

    cleaned.app.clean_up()

    assert [path.name for path in cleaned.home.state.iterdir()] == ["lock"]
    assert cleaned.log.list_topics() == ["in", "out"]
    assert cleaned.log.list_groups() == []


def test_cleaning_an_application_that_never_ran_does_nothing(tmp_path: Path) -> None:
    app = KafkaStreams(program().build(), application_id="app", state_dir=tmp_path)
    log = open_log(app.config)
    log.create_topic("in")

    app.clean_up()

    assert log.list_topics() == ["in"]


def test_the_next_cleaning_deletes_the_files_of_an_interrupted_one(tmp_path: Path) -> None:
    cleaned = Cleaned(tmp_path)
    cleaned.home.discard_checkpoint()

    cleaned.app.clean_up()

    assert [path.name for path in cleaned.home.state.iterdir()] == ["lock"]


def test_an_application_that_another_process_runs_is_not_cleaned(tmp_path: Path) -> None:
    cleaned = Cleaned(tmp_path)

    with cleaned.home.lock(log="elsewhere"), pytest.raises(CheckpointInUseError):
        cleaned.app.clean_up()

    assert cleaned.checkpoint.exists()
    assert "app-markers" in cleaned.log.list_groups()


def test_an_application_with_a_leader_or_a_standby_is_not_cleaned(tmp_path: Path) -> None:
    cleaned = Cleaned(tmp_path)
    with KafkaConsumer(
        key=bytes, value=bytes, group_id="app-leader", embedded_path=tmp_path / "topics.db"
    ) as member:
        member.subscribe(["app-leader"])
        member.poll("50ms")

        with pytest.raises(GroupNotEmptyError, match="'app-leader' still has members"):
            cleaned.app.clean_up()

    assert cleaned.checkpoint.exists()
